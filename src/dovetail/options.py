"""The options of the public calls in one table: their types and texts, the calls that have them, and where they apply.

`python -m tools.write_options` writes the signatures and docstrings in api.py and the page docs/options.md from it.
request.py refuses an option that does not apply where it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from functools import cache
from typing import Any, NamedTuple

EARLY_MEMORY = "256MB"
"""The memory of a progressive join, unless another is given."""
WAIT_MS = 0.0  # uses even short gaps between batches; DINER and RPJ wait for 25 ms
METRICS = "dovetail"
"""The name of a streaming join in the query's progress, unless another is given."""


class Where(Flag):
    """Where a join runs: the kind of its inputs, and what is asked of them."""

    TABLES = auto()
    STEPS = auto()
    ARRIVING = auto()
    ORDERED = auto()
    SEVERAL = auto()
    SEVERAL_STEPS = auto()
    FRAMES = auto()
    STREAMS = auto()
    WINDOWED = auto()
    WITH_TABLE = auto()
    SEVERAL_FRAMES = auto()
    SEVERAL_STREAMS = auto()
    WAVES = auto()
    DIAGONAL_WAVES = auto()
    ORDERED_FRAMES = auto()

    NOWHERE = 0


PLACES = {
    Where.TABLES: "tables in process",
    Where.STEPS: "progressive joins of tables in process",
    Where.ARRIVING: "progressive joins of sources and files",
    Where.ORDERED: "results in order in process",
    Where.SEVERAL: "three and more tables in process",
    Where.SEVERAL_STEPS: "progressive joins of three and more inputs",
    Where.FRAMES: "DataFrames at rest",
    Where.STREAMS: "streams without a window",
    Where.WINDOWED: "streams within a window",
    Where.WITH_TABLE: "a stream with a table at rest",
    Where.SEVERAL_FRAMES: "three and more DataFrames at rest",
    Where.SEVERAL_STREAMS: "three and more streams",
    Where.WAVES: "progressive joins of DataFrames",
    Where.DIAGONAL_WAVES: "progressive joins of DataFrames by algorithm='diag'",
    Where.ORDERED_FRAMES: "results in order from DataFrames",
}

NOWHERE = Where.NOWHERE
PROGRESSIVE = Where.STEPS | Where.ARRIVING | Where.SEVERAL_STEPS
IN_PROCESS = PROGRESSIVE | Where.TABLES | Where.ORDERED | Where.SEVERAL
STREAMS = Where.STREAMS | Where.WINDOWED | Where.SEVERAL_STREAMS
AT_REST = Where.FRAMES | Where.SEVERAL_FRAMES
WAVES = Where.WAVES | Where.DIAGONAL_WAVES
ON_SPARK = STREAMS | Where.WITH_TABLE | AT_REST | WAVES | Where.ORDERED_FRAMES
SEVERAL = Where.SEVERAL | Where.SEVERAL_STEPS | Where.SEVERAL_FRAMES | Where.SEVERAL_STREAMS
IN_ORDER = Where.ORDERED | Where.ORDERED_FRAMES
EVERYWHERE = IN_PROCESS | ON_SPARK


class Option(NamedTuple):
    """An option of some calls. If calls differ in more than whether they have it, it has a row for each."""

    name: str
    calls: str  # the calls that have it
    type: str  # as in signatures
    default: Any
    text: str  # for users; follows `purpose`
    where: Where = EVERYWHERE  # where it applies
    purpose: str = ""  # what it is for, if not for everything; shown in the documentation and in errors
    ignored: Where = NOWHERE  # where it is accepted without effect: the same options serve tables and streams
    instead: str = ""  # a sentence on what to do where it does not apply
    algorithm: str = ""  # the only algorithm that has it
    least: float | None = None
    choices: tuple[str, ...] = ()
    example: str = ""  # an example value, for errors about the type
    no_request: tuple[Any, ...] = ()  # further values that mean "not set"

    @property
    def summary(self) -> str:
        """The text that users read."""
        if not self.purpose:
            return self.text
        start = self.purpose if self.algorithm else self.purpose[0].upper() + self.purpose[1:]
        return f"{start}: {self.text}"


SPARKS = "A DataFrame is Spark's to compute."

# Options that several calls share, with almost the same meaning.
WINDOW = Option(
    "window",
    "join",
    "Window | None",
    None,
    "`dovetail.window(...)`; only rows within the window of each other are joined.",
    where=Where.WINDOWED,
    purpose="two streams",
    instead="Put time into the condition, or join two streams; dovetail.progressive with algorithm='spo' joins within "
    "a window.",
    example="dovetail.window(rows=1000) or dovetail.window(time='1 hour', on='ts')",
)
THREADS = Option(
    "threads",
    "join multijoin asof nearest",
    "int | None",
    None,
    "how many; all cores by default. Rows and their order are the same for any number.",
    where=Where.TABLES | Where.SEVERAL,
    purpose="tables in process",
    instead=SPARKS,
    least=1,
)
BEST_OF = Where.TABLES | Where.FRAMES | Where.STREAMS | Where.WITH_TABLE
"""Where joins can choose the best partners of a row."""
KEYS = Option(
    "by",
    "asof nearest",
    "Any",
    None,
    "Columns that must be equal: a name, a pair of names if they differ, or a list of these.",
)
SHARE = Option(
    "share",
    "join progressive",
    "float | None",
    None,
    "the window, as a share of the side with the unique key.",
    where=Where.TABLES | Where.STEPS | Where.ARRIVING | Where.FRAMES | Where.DIAGONAL_WAVES,
    purpose="algorithm='diag'",
    algorithm="diag",
)

LEFT_ON = Option(
    "left_on",
    "join progressive count aggregate",
    "str | Sequence[str] | None",
    None,
    "In place of `on`: columns of the left input that equal those of `right_on`, as in pandas and Polars.",
    where=EVERYWHERE & ~SEVERAL,
    instead="Write the condition of several inputs as SQL text.",
)
SUFFIXES = Option(
    "suffixes",
    "join progressive",
    "Sequence[str | None] | None",
    None,
    "In place of `suffix`: what is appended to names that clash, of left columns and of right ones, as in pandas.",
    where=EVERYWHERE & ~SEVERAL,
    ignored=SEVERAL,
    example="('_x', '_y')",
)

OPTIONS = (
    LEFT_ON,
    LEFT_ON._replace(
        name="right_on", text="In place of `on`: the columns of the right input, one for each of `left_on`."
    ),
    SUFFIXES,
    Option(
        "indicator",
        "join",
        "bool | str",
        False,
        'True adds a column `_merge` that says where a row has its values from: "left_only", "right_only" or "both". '
        "Text is another name for it.",
    ),
    Option(
        "validate",
        "join",
        "str | None",
        None,
        '"1:1", "1:m" or "m:1" checks that keys are unique on the left, on the right or on both before the '
        'join, which must be on equalities; "m:m" checks nothing.',
        where=Where.TABLES | Where.FRAMES,
        purpose="tables at rest",
        choices=("1:1", "1:m", "m:1", "m:m", "one_to_one", "one_to_many", "many_to_one", "many_to_many"),
    ),
    Option(
        "top",
        "join",
        "int | None",
        None,
        "Only the best partners of each left row: this many, the first by `order_by`. For inner and left joins.",
        least=1,
    ),
    Option(
        "order_by",
        "join",
        "OrderBy | None",
        None,
        'which partners come first: "abs(l.t - r.t)", "r.y DESC", or a list of these, over the right side or both. '
        "Nulls come last. Without it any partner will do.",
        purpose="`top`",
    ),
    Option(
        "ties",
        "join nearest",
        "str",
        "any",
        '"any" for no more partners than that, "all" also for those that are equal to the last of them in the order.',
        choices=("any", "all"),
    ),
    KEYS,
    Option(
        "direction",
        "asof",
        "str",
        "backward",
        '"backward" for the last right row up to the left one, "forward" for the first from it on, "nearest" for the '
        "nearer one.",
        choices=("backward", "forward", "nearest"),
    ),
    Option(
        "tolerance",
        "asof",
        "Any",
        None,
        'How far away a partner may be: a number, a timedelta, or text such as "10 minutes".',
    ),
    Option(
        "exact",
        "asof",
        "bool",
        True,
        "Whether a right row at the same time is a partner.",
    ),
    Option(
        "k",
        "nearest",
        "int",
        1,
        "How many partners of each left row.",
        least=1,
    ),
    Option(
        "within",
        "nearest",
        "Any",
        None,
        'How far away a partner may be: a number, or for times a timedelta or text such as "10 minutes".',
    ),
    Option(
        "direction",
        "nearest",
        "str",
        "both",
        '"upstream" for those that end before the left one starts, "downstream" for those that start after it has '
        "ended.",
        purpose="intervals",
        choices=("both", "upstream", "downstream"),
    ),
    Option(
        "by",
        "aggregate",
        "str | Sequence[str] | None",
        None,
        "A column or a list of columns of one side: a row for each group that has a pair. Without it, one row.",
        where=Where.TABLES | Where.FRAMES,
        instead="Aggregates of streams are for each left row: group them in the query.",
    ),
    Option(
        "suffix",
        "join progressive asof nearest",
        "str",
        "_right",
        "Appended to the names of right columns that clash with a left one.",
        where=EVERYWHERE & ~SEVERAL,
        ignored=SEVERAL,
    ),
    Option(
        "columns",
        "join",
        "Sequence[str] | None",
        None,
        "The columns of the result, by their names there and in this order; by default all. No others are read, unless "
        "the condition needs them.",
        where=Where.TABLES | Where.FRAMES | Where.STREAMS | Where.WINDOWED | Where.WITH_TABLE,
        instead="Select columns of the result.",
    ),
    WINDOW,
    WINDOW._replace(
        calls="aggregate",
        text="each row of the left one at its arrival, with aggregates over its partners in the window.",
    ),
    THREADS._replace(calls="count aggregate", text="how many; all cores by default."),
    Option(
        "memory",
        "join multijoin asof nearest",
        "str | float | None",
        None,
        'What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.',
    ),
    Option(
        "memory",
        "progressive",
        "str | float | None",
        EARLY_MEMORY,
        "What the join may keep in memory; None for no limit.",
        where=EVERYWHERE & ~IN_ORDER,
        ignored=IN_ORDER,
    ),
    Option(
        "memory",
        "count",
        "str | float | None",
        None,
        "as for `multijoin`.",
        where=Where.SEVERAL_FRAMES,
        purpose="three and more DataFrames",
    ),
    Option(
        "algorithm",
        "join",
        "str",
        "auto",
        '"auto", or the name of an algorithm; then its parameters can be given as well.',
    ),
    Option(
        "algorithm",
        "progressive",
        "str",
        "auto",
        '"auto", or the name of an algorithm; then its parameters can be given as well.',
        where=EVERYWHERE & ~Where.ORDERED,
        instead="Results in order are found by kernels, block by block.",
    ),
    Option(
        "algorithm",
        "multijoin",
        "str",
        "auto",
        'In process "auto" (kernels that see the inputs complete, two at a time), or "miner", "mjoin" or "pmj", which '
        'keep to `memory` by spilling to disk. Streams that end are joined by "miner".',
    ),
    Option(
        "algorithm",
        "count",
        "str",
        "auto",
        "as for `multijoin`.",
        where=Where.SEVERAL_FRAMES,
        purpose="three and more DataFrames",
    ),
    Option(
        "of",
        "explain",
        "str",
        "join",
        'The call that the plan is of: "join", "asof" or "nearest".',
        choices=("join", "asof", "nearest"),
    ),
    Option(
        "progressive",
        "explain",
        "bool",
        False,
        "Whether the plan is that of `dovetail.progressive`.",
    ),
    Option(
        "wait_ms",
        "progressive",
        "float",
        WAIT_MS,
        "After how long without rows the join turns to rows that it has spilled; 0: whenever no row waits.",
        where=PROGRESSIVE,
        ignored=EVERYWHERE & ~PROGRESSIVE,
        least=0,
    ),
    Option(
        "retry",
        "progressive",
        "Retry | None",
        None,
        "how a source that fails is opened again at its position, such as `dovetail.sources.Retry(tries=3)`. When all "
        "tries have failed, SourceError is raised, and the steps up to then remain valid.",
        where=Where.ARRIVING | Where.SEVERAL_STEPS,
        purpose="sources and files",
        example="dovetail.sources.Retry(tries=3)",
    ),
    Option(
        "record",
        "progressive",
        "Recording | str | os.PathLike[str] | None",
        None,
        "A file that `dovetail watch` follows, or a `dovetail.Recording`: what the join does over time.",
    ),
    Option(
        "workers",
        "progressive",
        "int",
        1,
        "on how many threads they are joined. A sample balances their load; each has its part of the memory.",
        where=Where.STEPS,
        purpose="two tables in process",
        least=1,
    ),
    Option(
        "order_by",
        "progressive",
        "OrderBy | None",
        None,
        'results in order: "l.x", "r.y DESC", "l.a NULLS LAST", or a list of these, each over one side. They are '
        "kept in memory; with a `limit` joined only until there are enough rows. Nulls and NaN are ordered as in "
        "Spark, which sorts DataFrames after the join.",
        where=IN_ORDER,
        purpose="two tables, Parquet files or DataFrames",
    ),
    Option(
        "limit",
        "join asof nearest",
        "int | None",
        None,
        "How many rows of the result are enough, whichever they are. The join stops when it has them, on Spark in "
        "every task. For streams it counts all rows, also those of a query that is started again.",
        least=0,
    ),
    Option(
        "limit",
        "progressive",
        "int | None",
        None,
        "The iterator ends with the step that completes this number of rows.",
        least=0,
    ),
    Option(
        "progress",
        "join asof nearest",
        "bool | Observer | None",
        None,
        "False for no bar, True for one in any case, or a function that is called with `Progress`. By default a "
        "join of more than a second shows a bar on a terminal and in a notebook. A reader takes a function only.",
        where=Where.TABLES,
        purpose="tables in process",
        instead="Spark shows its own progress.",
        no_request=(False,),
    ),
    Option(
        "progress",
        "progressive",
        "bool | None",
        None,
        "True shows the join while it runs: a chart in a notebook, a panel on a terminal, else lines. By default a "
        "join of more than a second does so in a notebook only; False is never.",
    ),
    THREADS,
    Option(
        "to",
        "join asof nearest",
        "str",
        "table",
        '"table", or "reader" for a pyarrow.RecordBatchReader, which joins as it is read: for results larger than '
        "memory.",
        where=Where.TABLES,
        purpose="tables in process",
        instead=SPARKS,
        choices=("table", "reader"),
    ),
    Option(
        "aggregate",
        "progressive",
        "Mapping[str, str] | None",
        None,
        '`{"n": "count(*)", "mean": "avg(l.fare)"}`: `step.aggregates` with bounds, instead of rows.',
        where=Where.STEPS | Where.ARRIVING | Where.WAVES,
        purpose="two inputs",
    ),
    Option(
        "until",
        "progressive",
        "Any",
        None,
        '10_000 results, a relative error of 0.01, "30 seconds", or a list of these; then it stops.',
        where=PROGRESSIVE | Where.ORDERED | Where.WAVES,
        instead="To stop early, leave the loop over the steps, or give limit=.",
    ),
    Option(
        "work_dir",
        "progressive",
        "str | None",
        None,
        "a directory from which a join that was stopped resumes.",
        where=WAVES,
        purpose="DataFrames",
    ),
    Option(
        "cells",
        "join progressive count aggregate multijoin",
        "int | None",
        None,
        "into how many cells the join is divided; by default a sample decides.",
        where=ON_SPARK & ~Where.WITH_TABLE,
        purpose="DataFrames",
        least=1,
    ),
    Option(
        "seed",
        "progressive",
        "int",
        0,
        "the seed of the samples.",
        where=Where.WAVES,
        purpose="DataFrames",
    ),
    Option(
        "sample",
        "join count aggregate multijoin",
        "bool",
        True,
        "whether the inputs are sampled first, which balances cells and skips those without matches.",
        where=AT_REST,
        purpose="DataFrames at rest",
        ignored=STREAMS,
    ),
    Option(
        "sample",
        "progressive",
        "bool",
        True,
        "whether the inputs are sampled first.",
        where=Where.ORDERED_FRAMES,
        purpose="DataFrames with `order_by`",
    ),
    Option(
        "state_dir",
        "join aggregate multijoin",
        "str | None",
        None,
        "where state is kept, a path or a URI that all workers share and that outlives restarts.",
        where=STREAMS | Where.WITH_TABLE,
        purpose="streams",
        ignored=AT_REST,
    ),
    Option(
        "metrics",
        "join aggregate multijoin",
        "str",
        METRICS,
        "the name of the join in the query's progress.",
        where=STREAMS,
        purpose="streams",
        ignored=AT_REST,
    ),
    Option(
        "end",
        "join",
        "str | tuple[str, str] | None",
        None,
        'a SQL predicate that is true of the last row of an input, a pair of them, "source" for Dovetail\'s '
        'sources, or "available" if the data that is there now is complete.',
        where=Where.STREAMS,
        purpose="streams that end",
        ignored=Where.WINDOWED | Where.FRAMES,
        example="\"kind = 'end'\", 'source' for Dovetail's sources, or 'available' if the available data is complete",
    ),
    Option(
        "end",
        "multijoin",
        "str | Mapping[str, str] | None",
        None,
        'what is true of the last row of an input, a dictionary with one for each, "source" or "available", as for '
        "`join`.",
        where=Where.SEVERAL_STREAMS,
        purpose="streams that end",
    ),
    Option(
        "latency",
        "join multijoin",
        "str | timedelta | None",
        None,
        'how long rows may wait for background work to pause, such as "1 second".',
        where=Where.STREAMS | Where.SEVERAL_STREAMS,
        purpose="streams that end",
        ignored=Where.WINDOWED | AT_REST,
    ),
    SHARE,
    SHARE._replace(name="one", type="str | None", text='the side with the unique key, "left" or "right".'),
    SHARE._replace(name="tables", type="int | None", text="into how many tables the window is divided."),
    Option(
        "trusted",
        "join progressive count aggregate multijoin",
        "bool",
        False,
        "text (`on`, `end`, `order_by`) may call every function, also those with side effects such as "
        "`java_method`, and functions of your own. Give it for text of your own only.",
        where=ON_SPARK,
        purpose="DataFrames",
    ),
)

CALLS = {
    "join": Where.TABLES | Where.FRAMES | Where.STREAMS | Where.WINDOWED | Where.WITH_TABLE,
    "progressive": PROGRESSIVE | IN_ORDER | WAVES,
    "multijoin": Where.SEVERAL | Where.SEVERAL_FRAMES | Where.SEVERAL_STREAMS,
    "count": Where.TABLES | Where.SEVERAL | AT_REST,
    "aggregate": Where.TABLES | Where.FRAMES | Where.WINDOWED,
    "asof": BEST_OF,
    "nearest": BEST_OF,
    "explain": NOWHERE,
}
"""The public calls and where they run. `explain` runs nothing."""
EXPLAINED = ("join", "progressive", "asof", "nearest")
"""The calls whose options `explain` takes."""
AUTO = "auto"
"""For `explain`: the call's own default, where calls differ."""


@cache
def options_of(call: str) -> Mapping[str, Option]:
    """The options of a call, in the order of its signature. For `explain`, those of the calls that it explains."""
    if call != "explain":
        return {row.name: row for row in OPTIONS if call in row.calls.split()}
    found: dict[str, Option] = {}
    for row in OPTIONS:
        calls = [one for one in ("explain", *EXPLAINED) if one in row.calls.split()]
        if not calls:
            continue
        text = row.text if calls[0] == "explain" else f"As for `{calls[0]}`."
        first = found.setdefault(row.name, Option(row.name, "explain", row.type, row.default, text))
        if repr(first.default) != repr(row.default):
            found[row.name] = first._replace(default=AUTO)
    return found


@cache
def accepted_by(call: str) -> Mapping[str, Option]:
    """The options of a call, and those accepted through `**`: these calls accept the options of joins on Spark."""
    if call not in ("count", "aggregate", "asof", "nearest"):
        return options_of(call)
    lent = {name: row for name, row in options_of("join").items() if not row.where & IN_PROCESS}
    return {**lent, **options_of(call)}


@cache
def default_of(call: str, name: str) -> Any:
    """The default of an option. For a call that does not have it, the default of another call."""
    rows = [row for row in OPTIONS if row.name == name]
    return next((row for row in rows if call in row.calls.split()), rows[0]).default
