"""Writes the page of the documentation from the JSON of a run and from reasons.toml: losses first."""

from __future__ import annotations

import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.nonequi.case import WARM_ROWS
from benchmarks.nonequi.cases import CASES
from benchmarks.nonequi.contenders import CONTENDERS, OURS, find
from benchmarks.nonequi.environments import ROOT
from benchmarks.nonequi.plots import draw
from benchmarks.nonequi.runner import NO_FIGURES, Entry

PAGE = ROOT / "docs" / "nonequi.md"
IMAGES = ROOT / "docs" / "images"
REASONS = Path(__file__).with_name("reasons.toml")
NO_FIGURE_WORDS = (*NO_FIGURES, "wrong")
TITLES = {
    "rows": "The whole result",
    "count": "The number of rows",
    "first": "The first 1,000 rows",
}


class League(NamedTuple):
    """Contenders that are compared with each other."""

    name: str
    ours: str
    others: tuple[str, ...]


ON_SPARK = tuple(name for name in CONTENDERS if find(name).environment == "spark" and name not in OURS)
LEAGUES = (
    League("in process", "dovetail", tuple(name for name in CONTENDERS if name not in (*OURS, *ON_SPARK))),
    League("on Spark", "dovetail_spark", ON_SPARK),
)


class Loss(NamedTuple):
    case: str
    rows: int
    output: str
    first: str
    first_s: float
    ours: str
    ours_s: float


class Figures:
    """The entries of a run, by case, size, output and contender."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.run = found
        self.entries: dict[tuple[str, int, str, str], Entry] = {
            (entry["case"], entry["rows"], entry["output"], entry["contender"]): entry for entry in found["entries"]
        }
        self.measured = [entry for entry in found["entries"] if "runs" in entry]

    def cpu_s(self, case: str, rows: int, output: str, contender: str) -> float | None:
        entry = self.entries.get((case, rows, output, contender))
        if entry is None or "runs" not in entry or "wrong" in entry:
            return None
        return float(statistics.median(run["cpu_s"] for run in entry["runs"]))

    def cases(self) -> list[tuple[str, int]]:
        """Cases with their sizes, in the order of the suite."""
        found = {(case, rows) for case, rows, _, _ in self.entries}
        order = list(CASES)
        return sorted(found, key=lambda key: (key[1], order.index(key[0])))

    def results(self, case: str, rows: int) -> int | None:
        counts = [
            entry["answer"]["rows"]
            for (name, size, output, _), entry in self.entries.items()
            if (name, size) == (case, rows) and output != "first" and "answer" in entry and "wrong" not in entry
        ]
        return max(counts, default=None)


def losses(figures: Figures) -> list[Loss]:
    """Cases in which another contender takes less CPU time, the largest ratio first."""
    found = []
    for case, rows in figures.cases():
        for league in LEAGUES:
            for output in TITLES:
                ours = figures.cpu_s(case, rows, output, league.ours)
                theirs = {name: figures.cpu_s(case, rows, output, name) for name in league.others}
                taken = {name: seconds for name, seconds in theirs.items() if seconds is not None}
                if ours is None or not taken:
                    continue
                first = min(taken, key=lambda name: taken[name])
                if taken[first] < ours:
                    found.append(Loss(case, rows, output, first, taken[first], league.ours, ours))
    return sorted(found, key=lambda loss: loss.first_s / loss.ours_s)


def write_page(found: Mapping[str, Any], page: Path = PAGE, images: Path = IMAGES) -> None:
    figures = Figures(found)
    with REASONS.open("rb") as file:
        reasons = tomllib.load(file)
    images.mkdir(parents=True, exist_ok=True)
    for output in ("rows", "first"):
        (images / f"nonequi_{output}.svg").write_text(draw(*_points(figures, output)))
    parts = [
        _opening(figures),
        _losses(figures, reasons),
        *(_table(figures, output) for output in TITLES),
        _memory(figures),
        _cannot(figures),
        _method(figures),
    ]
    page.write_text("\n".join(parts))


def _opening(figures: Figures) -> str:
    machine = figures.run["machine"]
    loads = [entry["load"] for entry in figures.measured]
    days = sorted({entry["started"][:10] for entry in figures.measured})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    contenders = {entry["contender"] for entry in figures.measured}
    lines = [
        "# Joins without equal keys",
        prose(
            """Read this page when you compare systems for inequalities, ranges, overlaps, bands, as-of joins or nearest
            neighbours."""
        ),
        prose(
            f"""{len({case for case, _ in figures.cases()})} cases, {len(contenders)} contenders, each written as its
            own documentation recommends and given the whole machine: {machine["cpus"]} cores ({machine["cpu"]}),
            {machine["memory_bytes"] / 2**30:.0f} GB, {when}. A script writes this page from the figures of a run.
            `make bench-nonequi` repeats it; `benchmarks/nonequi/README.md` says how everything is measured."""
        ),
    ]
    if loads and max(loads) > machine["cpus"]:
        lines.append(
            prose(
                f"""**Other programs ran on this machine**: the load average was {min(loads):.0f} to {max(loads):.0f} on
                {machine["cpus"]} cores. Seconds by the clock mean little then, so all figures are CPU seconds of the
                process and all that it started. Contention for caches is in them. Read them as orders of magnitude; a
                difference of less than half means nothing."""
            )
        )
    else:
        lines.append("Figures are CPU seconds, medians of up to three runs.")
    if note := figures.run.get("note"):
        lines.append(note)
    return "\n\n".join(lines) + "\n"


def prose(text: str) -> str:
    """A paragraph joined into one line."""
    return " ".join(text.split())


def _losses(figures: Figures, reasons: Mapping[str, Mapping[str, str]]) -> str:
    lines = [
        "## Where Dovetail is not the first\n",
        "| case | rows | asked | first | CPU s | Dovetail, CPU s | ratio | reason |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for loss in losses(figures):
        reason = reasons.get(loss.ours, {}).get(f"{loss.case}.{loss.output}", "not known yet")
        lines.append(
            f"| {CASES[loss.case].title} | {short(loss.rows)} | {loss.output} | {find(loss.first).title} | "
            f"{seconds(loss.first_s)} | {seconds(loss.ours_s)} | {loss.first_s / loss.ours_s:.2f} | {reason} |"
        )
    if len(lines) == 3:
        return "## Where Dovetail is not the first\n\nNowhere in this run.\n"
    return "\n".join(lines) + "\n\nThe ratio is that of CPU seconds; below 1 the other one needs less.\n"


def _table(figures: Figures, output: str) -> str:
    words = {
        "rows": "CPU seconds to build all rows with all columns; on Spark, to write them to its `noop` sink.",
        "count": "CPU seconds to count the rows of the result.",
        "first": "CPU seconds until any 1,000 rows of the result are there.",
    }
    lines = [f"## {TITLES[output]}\n", words[output] + "\n"]
    if output != "count":
        lines.append(f"![{TITLES[output]}: CPU seconds of each contender, by case](images/nonequi_{output}.svg)\n")
    for league in LEAGUES:
        lines += _league_table(figures, output, league)
    return "\n".join(lines)


def _league_table(figures: Figures, output: str, league: League) -> Iterator[str]:
    names = [name for name in (league.ours, *league.others) if _has_run(figures, output, name)]
    if not names:
        return
    yield f"### {TITLES[output]}, {league.name}\n"
    yield "| case | rows | results | " + " | ".join(find(name).title for name in names) + " |"
    yield "|---" * (len(names) + 3) + "|"
    for case, rows in figures.cases():
        cells = [_cell(figures, case, rows, output, name) for name in names]
        if not any(cells):
            continue
        taken = [figures.cpu_s(case, rows, output, name) for name in names]
        best = min((one for one in taken if one is not None), default=None)
        shown = [
            f"**{cell}**" if one is not None and one == best else cell for one, cell in zip(taken, cells, strict=True)
        ]
        results = figures.results(case, rows)
        yield (
            f"| {CASES[case].title} | {short(rows)} | {short(results) if results is not None else ''} | "
            + " | ".join(shown)
            + " |"
        )
    yield ""


def _has_figure(figures: Figures, output: str, name: str) -> bool:
    return any(figures.cpu_s(case, rows, output, name) is not None for case, rows in figures.cases())


def _has_run(figures: Figures, output: str, name: str) -> bool:
    """Whether it was run: it has figures, or has failed."""
    entries = (figures.entries.get((case, rows, output, name)) for case, rows in figures.cases())
    return any(entry is not None and "cannot" not in entry and "absent" not in entry for entry in entries)


def _cell(figures: Figures, case: str, rows: int, output: str, name: str) -> str:
    """CPU seconds, a word for the reason why there are none, or nothing if it was not run."""
    entry = figures.entries.get((case, rows, output, name))
    if entry is None:
        return ""
    word = next((word for word in NO_FIGURE_WORDS if word in entry), None)
    if word in ("cannot", "absent"):
        return "-"
    taken = figures.cpu_s(case, rows, output, name)
    return word or seconds(taken or 0.0)


def _memory(figures: Figures) -> str:
    lines = [
        "## Memory\n",
        prose(
            """The most megabytes of the process and all that it has started while it builds the whole result, libraries
            and inputs included. Processes on Spark share memory, which is counted more than once."""
        )
        + "\n",
    ]
    names = [name for name in CONTENDERS if _has_figure(figures, "rows", name)]
    lines.append("| case | rows | " + " | ".join(find(name).title for name in names) + " |")
    lines.append("|---" * (len(names) + 2) + "|")
    for case, rows in figures.cases():
        cells = []
        for name in names:
            runs = figures.entries.get((case, rows, "rows", name), {}).get("runs", ())
            cells.append(f"{max(run['peak_bytes'] for run in runs) / 1e6:,.0f}" if runs else "")
        if any(cells):
            lines.append(f"| {CASES[case].title} | {short(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cannot(figures: Figures) -> str:
    """Entries without figures, by contender and reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for entry in figures.run["entries"]:
        for word in NO_FIGURE_WORDS:
            if word in entry:
                reason = entry[word] if word == "cannot" else f"{word}: {entry[word]}"
                cases = found.setdefault(entry["contender"], {}).setdefault(reason, [])
                if entry["case"] not in cases:
                    cases.append(entry["case"])
    lines = [
        "## Entries without a figure\n",
        prose(
            """A dash is a case that the system has nothing for, or a package that could not be installed. `time` and
            `memory` are limits that were exceeded, `wrong` is an answer that differs from that of most others, and an
            empty cell was not run."""
        )
        + "\n",
        "| contender | why | cases |",
        "|---|---|---|",
    ]
    for name in CONTENDERS:
        for reason, cases in found.get(name, {}).items():
            lines.append(f"| {find(name).title} | {_one_line(reason)} | {_cases(cases)} |")
    return "\n".join(lines) + "\n"


def _cases(names: Sequence[str]) -> str:
    others = [name for name in CASES if name not in names]
    if not others:
        return "all"
    return ", ".join(names) if len(names) <= len(others) else f"all but {', '.join(others)}"


def _one_line(text: str) -> str:
    text = text.replace("|", "/").replace("\n", " ")
    return text if len(text) <= 160 else text[:157] + "…"


def _method(figures: Figures) -> str:
    limits, machine = figures.run["limits"], figures.run["machine"]
    versions = {entry["contender"]: entry["versions"] for entry in figures.measured}
    cases = [
        f"| `{name}` | {CASES[name].title} | {CASES[name].source or 'ours'} |"
        for name in dict.fromkeys(name for name, _ in figures.cases())
    ]
    contenders = [
        f"| {find(name).title} | {', '.join(map(' '.join, versions[name].items()))} | {find(name).first_by} |"
        for name in CONTENDERS
        if name in versions
    ]
    return "\n".join(
        [
            "## How it was measured\n",
            prose(
                f"""Each entry is a fresh process that loads the tables, runs the query on {WARM_ROWS:,} rows, and then
                up to {figures.run["runs"]} times in full, within {limits["cpu_s"]:g} CPU seconds and
                {limits["memory_bytes"] / 1e9:g} GB. All contenders had to agree on the number of rows and on a checksum
                of which rows are beside each other. In process, tables are in memory, in each system's own form; on
                Spark they are Parquet files."""
            )
            + "\n",
            f"The contenders, on Python {machine['python']}:\n",
            "| contender | versions | the first rows were asked for by |",
            "|---|---|---|",
            *contenders,
            "\nThe cases:\n",
            "| name | what | from |",
            "|---|---|---|",
            *cases,
            "",
        ]
    )


def _points(figures: Figures, output: str) -> tuple[str, dict[str, dict[str, float]], dict[str, str]]:
    """For a plot: its title, seconds by case and contender, and the names of contenders."""
    sizes = Counter(entry["rows"] for entry in figures.measured if not CASES[entry["case"]].rows)
    rows = max(sizes, key=lambda size: sizes[size], default=0)  # the most frequent size
    points: dict[str, dict[str, float]] = {}
    for case, size in figures.cases():
        if size != rows:
            continue
        taken = {name: figures.cpu_s(case, rows, output, name) for name in CONTENDERS}
        known = {name: one for name, one in taken.items() if one is not None}
        if known:
            points[CASES[case].title] = known
    return f"{TITLES[output]}: CPU seconds, {rows:,} rows", points, {name: find(name).title for name in CONTENDERS}


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def short(value: int) -> str:
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return str(value)
