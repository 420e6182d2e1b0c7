"""Renders a run as HTML: figures, plots, sources, phases, the plan, and the data behind them.

A report is one file without external resources or scripts, for small and large screens, light and dark.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from dovetail.core.addresses import local_path
from dovetail.core.directories import check_link
from dovetail.core.drafts import draft
from dovetail.core.markup import Html, tag, together
from dovetail.errors import InputError
from dovetail.monitoring import plot
from dovetail.monitoring import snapshot as figures
from dovetail.monitoring.formatting import format_bytes, format_seconds, format_share, short
from dovetail.monitoring.plot import percent
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import DONE, Heading, Noted, RunSnapshot

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
ROWS_IN_TABLE = 24  # of the data behind the plots


def report(recording: Recording | str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Write a report of a run as an HTML file, without external resources or scripts.

    Args:
        recording: A recording, or the file of one.
        path: The file to write.

    Returns:
        The path.

    Example:
        >>> import dovetail, pyarrow as pa, tempfile
        >>> table, recording = pa.table({"k": range(1000)}), dovetail.Recording()
        >>> steps = list(dovetail.progressive(table, table, "l.k = r.k", record=recording))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     dovetail.report(recording, f"{directory}/run.html").name
        'run.html'
    """
    if not isinstance(recording, Recording):
        recording = Recording.read(recording)
    if recording.heading is None:
        raise InputError(
            "nothing has been recorded yet: give the recording to dovetail.progressive(…, record=…) first."
        )
    target = local_path(path, "a report is written to a path of this machine")
    check_link(target)
    text = document(recording.heading.title, body(recording), POLICY).encode()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():  # /dev/stdout
            target.write_bytes(text)
        else:
            with draft(target.resolve()) as file:
                file.write(text)
    except OSError as error:
        raise InputError(f"{target} cannot be written to: {error.strerror}.") from error
    return target


def document(title: str, content: Html, policy: str, *scripts: Html, **about_main: str) -> str:
    """An HTML page. `about_main` are attributes of its main element."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title} · Dovetail"),
        tag("style", Html(style())),
    )
    page = tag("html", head, tag("body", tag("main", content, id="main", **about_main), *scripts), lang="en")
    return f"<!doctype html>\n{page}\n"


def style() -> str:
    return files("dovetail.monitoring").joinpath("style.css").read_text(encoding="utf-8")


def body(recording: Recording) -> Html:
    """The view of a run, while it runs or afterwards."""
    snapshot = recording.snapshot()
    return together(
        _header(snapshot),
        _tiles(snapshot),
        _results(snapshot),
        _held_section(snapshot),
        _sources(snapshot),
        _phases(snapshot),
        _plan(snapshot.heading),
        _data(snapshot),
    )


def _header(snapshot: RunSnapshot) -> Html:
    heading = snapshot.heading
    state = figures.state(snapshot)
    note = figures.missing(snapshot)
    return tag(
        "header",
        tag("p", "Dovetail", tag("span", f" join {heading.where}"), class_="brand"),
        tag("h1", heading.title),
        tag("p", tag("code", heading.on), class_="on"),
        tag(
            "p",
            tag("strong", state, class_=f"state {plot.class_name(state)}"),
            tag("span", figures.describe_state(snapshot) or f"after {format_seconds(snapshot.seconds)}"),
            class_="now",
            role="status",
        ),
        tag("p", note, class_="note", role="alert") if note else None,
    )


def _tiles(snapshot: RunSnapshot) -> Html:
    moments, last = snapshot.moments, snapshot.latest
    first = figures.first_result_s(moments)
    tiles = [
        ("results", f"{last.results:,}", ""),
        ("time", format_seconds(snapshot.seconds), ""),
        ("first result", "-" if first is None else f"{first:.1f} s", "after the start"),
        (
            "per second",
            short(figures.rate(snapshot)),
            "of late" if snapshot.running else "overall",
        ),
    ]
    if snapshot.running and (estimate := last.estimate) is not None:
        bounds = f"{short(estimate.low)} to {short(estimate.high)}"
        tiles.append(("expected", short(estimate.total), bounds))
    for name, label in (("resident_rows", "rows in memory"), ("spilled_rows", "rows on disk")):
        most = figures.peak(moments, name)
        if most is not None:
            now = getattr(last, name)
            over = not snapshot.running
            tiles.append((label, short(most if over else now), "at most" if over else f"{short(most)} at most"))
    shown = figures.shown_figures(snapshot)
    tiles += [(figure.label, figure.now, f"{figure.most} at most" if figure.most else "") for figure in shown]
    if (early := figures.early_share(snapshot)) is not None:
        tiles.insert(3, ("early", format_share(early), "before the end"))
    return tag(
        "dl",
        *(
            tag("div", tag("dt", label), tag("dd", value, tag("small", note) if note else None))
            for label, value, note in tiles
        ),
        class_="tiles",
    )


def _results(snapshot: RunSnapshot) -> Html:
    moments = snapshot.moments
    found = [(noted.second, float(noted.moment.results)) for noted in moments]
    estimates = [(noted.second, noted.moment.estimate) for noted in moments if noted.moment.estimate is not None]
    totals = [(second, estimate.total) for second, estimate in estimates]
    most = max([value for _, value in found + totals], default=1.0)
    widest = max((estimate.high for _, estimate in estimates), default=0.0)
    frame = plot.frame(snapshot.seconds, 1.1 * max(most, min(widest, 1.3 * most)))
    spans = figures.phase_bands(moments)
    shapes = [plot.bands(frame, spans)]
    entries = [("line-results", "results so far")]
    marks = []
    if estimates:
        highs = [(second, estimate.high) for second, estimate in estimates]
        lows = [(second, estimate.low) for second, estimate in estimates]
        shapes += [plot.area(frame, highs, "bounds", lows), plot.line(frame, totals, "estimate")]
        entries += [
            ("line-estimate", f"estimate of the total, with bounds of {format_share(estimates[-1][1].confidence)}")
        ]
    shapes += [plot.area(frame, found, "results"), plot.line(frame, found, "results")]
    if snapshot.outcome == DONE:
        truth = float(snapshot.latest.results)
        if estimates:
            shapes.append(plot.level(frame, truth, "truth"))
            entries.append(("line-truth", f"the truth: {truth:,.0f}"))
        marks = [plot.mark(frame, snapshot.seconds, truth, f"{truth:,.0f}", "end")]
    total = f"{snapshot.latest.results:,} after {format_seconds(snapshot.seconds)}"
    said = f"Results over time: {total}. {_describe_spans(spans)}"
    strip = plot.track(frame, spans, _describe_spans(spans))
    marks.append(plot.slices(frame, [(noted.second, _results_then(noted)) for noted in moments]))
    objection = snapshot.latest.objection
    return _section(
        "Results over time",
        together(
            _legend(entries),
            tag("p", f"There is no estimate: {objection}", class_="aside") if objection and snapshot.running else None,
            plot.plot(frame, shapes, said, marks=marks, strip=strip),
            _key(spans),
        ),
    )


def _held_section(snapshot: RunSnapshot) -> Html | None:
    moments = [noted for noted in snapshot.moments if noted.moment.resident_rows is not None]
    if not moments:
        return None
    resident = [(noted.second, float(noted.moment.resident_rows or 0)) for noted in moments]
    both = [
        (noted.second, float((noted.moment.resident_rows or 0) + (noted.moment.spilled_rows or 0))) for noted in moments
    ]
    spills = both != resident
    frame = plot.frame(snapshot.seconds, 1.1 * max(value for _, value in both))
    shapes = [plot.bands(frame, figures.phase_bands(snapshot.moments))]
    entries = [("fill-resident", "rows in memory")]
    if spills:
        shapes += [plot.area(frame, both, "spilled", resident), plot.line(frame, both, "spilled")]
        entries.append(("fill-spilled", "rows on disk"))
    shapes += [plot.area(frame, resident, "resident"), plot.line(frame, resident, "resident")]
    said = f"Rows held over time, {figures.peak(moments, 'resident_rows'):,} in memory at most"
    if spills:
        said += f" and {figures.peak(moments, 'spilled_rows'):,} on disk at most"
    pointed = plot.slices(frame, [(noted.second, _held_then(noted)) for noted in moments])
    return _section("Rows held", together(_legend(entries), plot.plot(frame, shapes, f"{said}.", marks=[pointed])))


def _results_then(noted: Noted) -> list[str]:
    second, moment = noted
    lines = [format_seconds(second), f"{moment.results:,} results"]
    if (estimate := moment.estimate) is not None:
        lines += [f"about {short(estimate.total)} in all", f"{short(estimate.low)} to {short(estimate.high)}"]
    return lines


def _held_then(noted: Noted) -> list[str]:
    second, moment = noted
    return [format_seconds(second), f"{moment.resident_rows or 0:,} in memory", f"{moment.spilled_rows or 0:,} on disk"]


def _sources(snapshot: RunSnapshot) -> Html | None:
    sources = figures.sources(snapshot)
    if not sources:
        return None
    frame = plot.frame(snapshot.seconds, 1.0)
    lanes = []
    for number, source in enumerate(sources):
        spans = figures.source_bands(snapshot.moments, number)
        label = tag(
            "div",
            tag("strong", source.name),
            tag("span", source.state, class_=f"state {plot.class_name(source.state)}"),
            tag("span", f"{source.rows:,} rows", class_="count"),
            class_="label",
        )
        lanes.append(
            tag("div", label, plot.track(frame, spans, f"{source.name}: {_describe_spans(spans)}"), class_="lane")
        )
    axis = plot.time_axis(frame, plot.nice_seconds(frame.end))
    key = tag(
        "p",
        *(tag("span", tag("i", class_=plot.class_name(s)), s) for s in ("arriving", "stalled", "ended")),
        class_="key",
    )
    return _section("Sources", together(*lanes, tag("div", axis, class_="chart"), key))


def _phases(snapshot: RunSnapshot) -> Html | None:
    rows = figures.by_phase(snapshot)
    if not rows:
        return None
    total = sum(row.seconds for row in rows) or 1.0
    lines = [
        tag(
            "tr",
            tag("th", tag("i"), row.phase, scope="row"),
            tag("td", f"{row.seconds:,.2f} s", _bar(row.seconds / total)),
            tag("td", f"{row.results:,}", _bar(row.share)),
            tag("td", format_share(row.share, 1)),
            tag("td", figures.PHASES.get(row.phase, ""), class_="words"),
            class_=plot.class_name(row.phase),
        )
        for row in rows
    ]
    names = ["phase", "time", "results", "share", ""]
    head = tag(
        "tr",
        *(tag("th", name, scope="col") for name in names[:-1]),
        tag("th", tag("span", "meaning", class_="unseen"), scope="col"),
    )
    return _section("By phase", tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll"))


def _bar(share: float) -> Html | None:
    return None if not share else tag("i", class_="bar", style=f"width:{percent(min(1.0, share))}")


def _plan(heading: Heading) -> Html:
    lines = [(line[:10].strip(), line[10:].strip()) for line in heading.plan.splitlines()]
    known = {name for name, _ in lines}
    facts = [("algorithm", heading.algorithm)] if heading.algorithm and "operator" not in known else []
    if heading.memory_bytes is not None and "memory" not in known:
        facts.append(("memory", format_bytes(heading.memory_bytes)))
    facts += [*lines, ("began", heading.began.replace("T", " ")[:19] + " UTC" if heading.began else "")]
    return _section(
        "Plan" if heading.plan else "Run",
        tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in facts if text), class_="plan"),
    )


def _data(snapshot: RunSnapshot) -> Html:
    """The data of the plots as a table."""
    moments = snapshot.moments
    step = max(1, -(-len(moments) // ROWS_IN_TABLE))
    chosen = [*moments[:-1:step], *moments[-1:]]
    names = ["time", "phase", "results", "in memory", "on disk", "estimate", "bounds"]
    rows = []
    for second, moment in chosen:
        estimate = moment.estimate
        cells = [
            f"{second:,.2f} s",
            moment.phase,
            f"{moment.results:,}",
            "-" if moment.resident_rows is None else f"{moment.resident_rows:,}",
            "-" if moment.spilled_rows is None else f"{moment.spilled_rows:,}",
            "-" if estimate is None else f"{estimate.total:,.0f}",
            "-" if estimate is None else f"{estimate.low:,.0f} to {estimate.high:,.0f}",
        ]
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    table = tag(
        "table", tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names))), tag("tbody", *rows)
    )
    return tag("details", tag("summary", "The same in numbers"), tag("div", table, class_="scroll"), class_="data")


def _section(title: str, content: Html) -> Html:
    return tag("section", tag("h2", title), content)


def _legend(entries: list[tuple[str, str]]) -> Html:
    return tag("p", *(tag("span", tag("i", class_=class_), words) for class_, words in entries), class_="legend")


def _key(spans: list[figures.StateSpan]) -> Html:
    """The legend: phases and their colours."""
    present = [phase for phase in figures.PHASES if any(span.state == phase for span in spans)]
    return tag("p", *(tag("span", tag("i", class_=plot.class_name(phase)), phase) for phase in present), class_="key")


def _describe_spans(spans: list[figures.StateSpan]) -> str:
    """Describe spans of time in words; if there are many, only the longest."""
    longest = sorted(sorted(spans, key=lambda span: span.start - span.end)[:12])
    return "; ".join(
        f"{span.state} from {format_seconds(span.start)} to {format_seconds(span.end)}" for span in longest
    )
