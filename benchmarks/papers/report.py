"""Writes a self-contained page with all findings, and the same as a table for the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.papers.plots import draw
from benchmarks.papers.registry import PAPERS, Claim, claims, experiments
from benchmarks.papers.verdicts import Finding, Part, Shares, Verdict
from dovetail.core.markup import Html, tag

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }
section { border-top: 1px solid #ddd; padding: .6rem 0 } h3 { margin: .4rem 0 } p { margin: .3rem 0 }
td { padding: .1rem .8rem .1rem 0; vertical-align: top } .said { color: #555 } svg { margin: .5rem 1rem .5rem 0 }
.reproduced { color: #1c7a33 } .direction { color: #1f6fb2 }
.conditional { color: #9a6a00 } .contradicted { color: #b3261e } .not { color: #7a3f9a }
"""
SHARES = (
    "share of all results while rows arrive",
    "bound",
    "the paper's, memory in rows",
    "ours, in rows",
    "the paper's, in bytes",
    "ours, in bytes",
    "`auto`, in bytes",
)


def write_report(file: Path, findings: Sequence[Finding], scale: str, reasons: Mapping[str, str]) -> None:
    known = claims()
    body = [tag("h1", "Claims of the papers, tried again"), tag("p", summary(findings, scale))]
    for paper in PAPERS:
        of_paper = [finding for finding in findings if known[finding.claim].paper == paper]
        if of_paper:
            body.append(tag("h2", paper.upper()))
            body += [_section(known[f.claim], f, reasons.get(f.claim, "")) for f in of_paper]
    page = tag(
        "html",
        tag("head", tag("meta", charset="utf-8"), tag("title", "Claims of the papers"), tag("style", Html(STYLE))),
        tag("body", *body),
        lang="en",
    )
    file.write_text(f"<!doctype html>\n{page}\n")


def summary(findings: Sequence[Finding], scale: str) -> str:
    printed, derived = split(findings)
    count = Counter(finding.verdict for finding in printed)
    listed = ", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict])
    beside = f" {len(derived)} more follow from the papers, which do not state them." if derived else ""
    return f"{len(printed)} claims at scale {scale}: {listed}.{beside}"


def split(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings of printed claims, and those of derived claims."""
    known = claims()
    printed, derived = ([f for f in findings if known[f.claim].derived is which] for which in (False, True))
    return printed, derived


def _section(claim: Claim, finding: Finding, reason: str) -> Html:
    rows = [_row(part) for part in finding.parts]
    rows += [_row(part, "(its size) ") for part in finding.sizes]
    rows += [_row(part, "(ours to keep) ") for part in finding.guards]
    return tag(
        "section",
        tag(
            "h3",
            f"{claim.name} · {claim.source}: ",
            tag("span", finding.verdict.value, class_=finding.verdict.value.split()[0]),
        ),
        tag("p", tag("b", "In print: "), claim.printed, " ", tag("span", f"({claim.workload})", class_="said")),
        tag("p", tag("b", "Asked: "), claim.asked),
        tag("p", tag("b", "Here: "), finding.setting),
        tag("table", *rows) if rows else None,
        tag("table", tag("tr", *(tag("th", name) for name in SHARES)), *map(_shares, finding.shares))
        if finding.shares
        else None,
        *(tag("p", line, class_="said") for line in (*finding.beside, _unjudged(finding), finding.missing) if line),
        tag("p", tag("b", "Why: "), reason) if reason else None,
        *(draw(plot) for plot in finding.plots),
        tag("p", f"{script_of(claim.name)} · docs/operators/{claim.operator}.md", class_="said"),
        id=claim.name,
    )


def _row(part: Part, kind: str = "") -> Html:
    return tag("tr", tag("td", "holds" if part.holds else "fails"), tag("td", kind + part.when), tag("td", part.here))


def _shares(shares: Shares) -> Html:
    return tag("tr", *(tag("td", cell) for cell in _cells(shares)))


def _cells(shares: Shares) -> list[str]:
    return [shares.when, *("" if share is None else f"{share:.3f}" for share in shares[1:])]


def script_of(claim: str) -> str:
    [module] = {each.module for each in experiments() if claim in each.claims}
    return f"benchmarks/papers/{module}.py"


MOST_LINES = 4  # of figures in a cell; failed ones come first


def markdown_table(findings: Sequence[Finding], reasons: Mapping[str, str]) -> Iterator[str]:
    """The table in docs/papers.md."""
    known = claims()
    yield "| claim | in print | asked | measured | verdict |"
    yield "|---|---|---|---|---|"
    for finding in findings:
        claim = known[finding.claim]
        script = script_of(claim.name)
        links = f"[{Path(script).stem}](../{script}), [{claim.operator}](operators/{claim.operator}.md)"
        reason = reasons.get(claim.name, "")
        cells = (
            f"**{claim.name}** {claim.source}<br>{links}",
            claim.printed,
            claim.asked,
            f"{finding.setting}<br>{measured(finding)}",
            f"{_verdict(finding)}{': ' if reason else ''}{reason}",
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _verdict(finding: Finding) -> str:
    return f"**{finding.verdict}**" if finding.verdict is not Verdict.REPRODUCED else str(finding.verdict)


def measured(finding: Finding) -> str:
    """The figures of some settings, failed ones first, and of the size."""
    fail, hold = ([part for part in finding.parts if part.holds is which] for which in (False, True))
    lines = [_line(part, "not: " if not part.holds else "") for part in (*fail, *hold)[:MOST_LINES]]
    more = len(finding.parts) - len(lines)
    lines += [f"and {more} more"] * (more > 0)
    lines += [_line(part, "size: " if part.holds else "size, not: ") for part in finding.sizes]
    return "<br>".join([*lines, *filter(None, [_unjudged(finding)])])


def _line(part: Part, kind: str) -> str:
    return f"{kind}{part.when}: {part.here}"


def _unjudged(finding: Finding) -> str:
    return f"size not judged: {finding.unsized}" if finding.unsized else ""
