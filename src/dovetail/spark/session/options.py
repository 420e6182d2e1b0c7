"""What `dovetail.join` takes for Spark besides the arguments of every join."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.spark.sources.columns import END
from dovetail.window import microseconds

AVAILABLE = "available"
"""Streams end with the first micro-batch that has no input."""
SOURCE = "source"
"""Dovetail's sources signal end of stream in a column that is dropped from the result."""
LATENCY_S = 3.0


@dataclass(frozen=True, slots=True)
class Options:
    cells: int | None = None  # how many tasks the join is cut into; None: from a sample
    sample: bool = True  # look at the data first: balances cells, splits heavy keys, prunes what cannot match
    state_dir: str | None = None  # streams: where segments are kept; must outlive restarts
    metrics: str = "dovetail"  # streams: the name of our figures in observedMetrics of the query's progress
    end: str | tuple[str, str] | None = (
        None  # streams: a SQL predicate for the end-of-stream row; or "source", "available"
    )
    latency: str | timedelta | None = None  # streams that end: how long rows may wait for background work to pause

    share: float | None = None  # diag: the window as a share of the side with the key; None: from a sample
    one: str | None = None  # diag: the side with the key, "left" or "right"
    tables: int | None = None  # diag: into which the window is divided

    trusted: bool = False  # whether text may call every function, also those with side effects

    @classmethod
    def split(cls, given: dict[str, Any], algorithm: str) -> tuple[Options, dict[str, Any]]:
        """The options among these, and parameters of the algorithm, if one is named: they are for the planner."""
        if algorithm in ("auto", "diag"):  # the parameters of diag are options
            return cls.read(given), {}
        known = {name: value for name, value in given.items() if name in cls.__dataclass_fields__}
        return cls.read(known), {name: value for name, value in given.items() if name not in known}

    @classmethod
    def read(cls, given: dict[str, Any]) -> Options:
        refuse_unknown(given, cls, "a join")
        options = cls(**given)
        options.latency_s  # noqa: B018  refuses what is no duration
        check_trusted(options.trusted)
        if options.cells is not None and not (type(options.cells) is int and options.cells > 0):
            raise InputError(f"cells must be a positive number; got {options.cells!r}.")
        if options.end is not None and not _tells_an_end(options.end):
            raise InputError(
                f"end= takes a SQL predicate such as \"kind = 'end'\" that recognises the end-of-stream marker "
                f"row, a pair of "
                "predicates, 'source' for Dovetail's sources, or 'available' if the available data is complete; "
                f"got {options.end!r}."
            )
        return options

    @property
    def latency_s(self) -> float:
        return LATENCY_S if self.latency is None else microseconds(self.latency) / 1e6

    def check_window(self, algorithm: str) -> None:
        """Refuse options of Diag-Join's window for other algorithms."""
        given = [name for name in ("share", "one", "tables") if getattr(self, name) is not None]
        if given and algorithm != "diag":
            raise InputError(f"{', '.join(given)}: an option of algorithm='diag' only.")

    def check_table(self) -> None:
        """Refuse options that mean nothing where a stream is joined with a table at rest."""
        given = [
            f.name
            for f in fields(self)
            if f.name not in ("state_dir", "trusted") and getattr(self, f.name) != f.default
        ]
        if given:
            raise InputError(f"{', '.join(given)}: no option of a join of a stream with a table at rest.")

    @property
    def ends(self) -> tuple[str, str] | None:
        """What is true of the rows that end each side."""
        if self.end is None or self.end == AVAILABLE:
            return None
        if self.end == SOURCE:
            return (END, END)
        return (self.end, self.end) if isinstance(self.end, str) else self.end


def check_trusted(given: Any) -> None:
    if type(given) is not bool:
        raise InputError(f"trusted is True or False; got {given!r}.")


def refuse_unknown(given: dict[str, Any], known: type[Any], what: str) -> None:
    """Options that no field of the class is called after."""
    names = known.__dataclass_fields__
    unknown = sorted(given.keys() - names.keys())
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no such option of {what} on Spark. There are {', '.join(names)}.")


def _tells_an_end(given: Any) -> bool:
    return isinstance(given, str) or (
        isinstance(given, tuple) and len(given) == len(Side) and all(isinstance(one, str) for one in given)
    )
