"""Write the table and plots of docs/papers.md from a run with --json.

python -m benchmarks.papers.pages FINDINGS.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.papers.plots import draw
from benchmarks.papers.registry import claims
from benchmarks.papers.report import markdown_table, script_of, split, summary
from benchmarks.papers.scale import SCALES
from benchmarks.papers.suite import read_expected
from benchmarks.papers.verdicts import Finding

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
PLOTS = PAGE.with_suffix("")  # docs/papers
MARK = "<!-- {} -->"


def main(file: str) -> None:
    fields = json.loads(Path(file).read_text())
    findings = [Finding.from_json(each) for each in fields["findings"]]
    reasons = {name: each.why for name, each in read_expected(SCALES[fields["scale"]]).items()}
    text = PAGE.read_text()
    printed, derived = split(findings)
    text = between(text, "verdicts", [summary(findings, fields["scale"]), "", *markdown_table(printed, reasons)])
    text = between(text, "derived", list(markdown_table(derived, reasons)))
    text = between(text, "plots", list(plots(findings)))
    PAGE.write_text(text)


def between(text: str, name: str, lines: Sequence[str]) -> str:
    """Replace the text between two marks."""
    start, end = MARK.format(name), MARK.format(f"end of {name}")
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    if not rest or not after:
        raise ValueError(f"{PAGE.name} has no {start} … {end}")
    return "\n".join([before + start, "", *lines, "", end + after])


def plots(findings: Sequence[Finding]) -> Iterator[str]:
    """Write a file for each plot. Yields the lines of the page about it."""
    PLOTS.mkdir(exist_ok=True)
    for old in PLOTS.glob("*.svg"):
        old.unlink()
    for finding in findings:
        claim = claims()[finding.claim]
        for number, plot in enumerate(finding.plots, 1):
            name = f"{claim.name.lower()}-{number}.svg"
            (PLOTS / name).write_text(draw(plot) + "\n")
            alt = re.sub(r"[\[\]]", "", f"{plot.figure}: {plot.y} by {plot.x}")
            script = script_of(claim.name)
            yield f"![{alt}](papers/{name})"
            yield ""
            yield f"{claim.name}: [{Path(script).stem}](../{script}), [{claim.operator}](operators/{claim.operator}.md)"
            yield ""


if __name__ == "__main__":
    main(sys.argv[1])
