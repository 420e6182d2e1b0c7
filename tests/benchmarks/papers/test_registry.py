"""Every claim has an experiment and an expected verdict; verdicts follow from settings, and changes are detected."""

import io
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.papers.plots import draw
from benchmarks.papers.registry import PAPERS, claims, experiments
from benchmarks.papers.report import markdown_table, split, summary, write_report
from benchmarks.papers.scale import SCALES
from benchmarks.papers.suite import Expected, compare, papers, print_findings, read_expected
from benchmarks.papers.verdicts import Finding, Plot, Spread, Verdict
from rich.console import Console

from dovetail.errors import InputError

ROOT = Path(__file__).parents[3]
COUNTS = {"DN": 19, "MN": 4, "RP": 12, "DG": 12, "PM": 12, "SP": 20}


def finding(*holds: bool) -> Finding:
    found = Finding("C-RP-10", "somewhere")
    for number, each in enumerate(holds):
        found.judge(f"setting {number}", "1.0", each)
    return found


def test_all_claims_are_there() -> None:
    assert Counter(name.split("-")[1] for name in claims()) == COUNTS
    assert sum(COUNTS.values()) == 79


def test_every_claim_has_one_experiment() -> None:
    tried = Counter(name for each in experiments() for name in each.claims)
    assert set(tried) == set(claims())
    assert set(tried.values()) == {1}


@pytest.mark.parametrize("scale", ["ci", "small", "paper"])
def test_every_claim_has_an_expected_verdict(scale: str) -> None:
    expected = read_expected(SCALES[scale])
    assert set(expected) == set(claims())
    for name, each in expected.items():
        assert each.verdict in set(Verdict), name
        if each.verdict != Verdict.REPRODUCED or each.fails:
            assert each.why, f"{name} is {each.verdict}, and nothing says why"


def test_every_operator_has_its_page() -> None:
    assert all((ROOT / "docs" / "operators" / f"{claim.operator}.md").is_file() for claim in claims().values())


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ((True, True), Verdict.REPRODUCED),
        ((True, False), Verdict.CONDITIONAL),
        ((False, False), Verdict.CONTRADICTED),
        ((), Verdict.NOT_REPRODUCIBLE),
    ],
)
def test_a_verdict_follows_from_the_settings(holds: tuple[bool, ...], verdict: Verdict) -> None:
    assert finding(*holds).verdict is verdict


def test_a_size_that_is_missed_or_not_judged_leaves_the_direction() -> None:
    reached, missed, unjudged = finding(True), finding(True), finding(True)
    reached.judge_size("3 times", "3.1", True)
    missed.judge_size("3 times", "1.2", False)
    unjudged.unsized = "operations are counted"
    assert [each.verdict for each in (reached, missed, unjudged)] == ["reproduced", "direction", "direction"]
    assert missed.fails == ["3 times"]
    contradicted = finding(False)
    contradicted.judge_size("3 times", "1.2", False)
    assert contradicted.verdict is Verdict.CONTRADICTED


def test_derived_claims_are_not_counted_among_the_papers() -> None:
    derived = Finding("C-DN-5b", "somewhere")
    derived.judge("at least .95", ".97", True)
    printed, beside = split([finding(True), derived])
    assert [each.claim for each in printed] == ["C-RP-10"]
    assert beside == [derived]
    assert summary([finding(True), derived], "ci").startswith("1 claims at scale ci: 1 reproduced. 1 more")


def test_a_guard_does_not_decide_but_opens_no_gate() -> None:
    found = finding(True)
    found.guard("not above the bound", "0.2 above", False)
    assert found.verdict is Verdict.REPRODUCED
    assert compare([found], {"C-RP-10": Expected("reproduced", (), "")}) == [
        "C-RP-10: does not hold any more: not above the bound."
    ]


def test_changes_are_seen_in_both_directions() -> None:
    expected = {"C-RP-10": Expected("conditional", ("setting 1", "of another scale"), "because")}
    assert compare([finding(True, False)], expected) == []
    assert compare([finding(True, True)], expected) == [
        "C-RP-10: reproduced, expected conditional.",
        "C-RP-10: holds now: setting 1.",
    ]
    assert compare([finding(False, True)], expected) == [
        "C-RP-10: does not hold any more: setting 0.",
        "C-RP-10: holds now: setting 1.",
    ]
    assert compare([finding(True)], {}) == ["C-RP-10: reproduced; expected.toml does not have it."]


def test_findings_survive_json() -> None:
    found = finding(True, False)
    found.guard("a guard", "1", True)
    found.judge_size("twice", "1.5", False)
    found.plots.append(Plot("Fig. 1", "x", "y", {"line": [(0.0, 1.0), (1.0, 2.0)]}))
    again = Finding.from_json(found.to_json())
    assert (again.fails, again.tried, again.verdict) == (found.fails, found.tried, found.verdict)
    assert again.plots[0].figure == "Fig. 1"


def test_the_report_is_one_page(tmp_path: Path) -> None:
    found = finding(True, False)
    found.plots.append(Plot("Fig. 1 <&>", "x", "y", {"ours": [(0.0, 0.1), (1.0, 0.4)], "in print": [(1.0, 0.5)]}))
    write_report(tmp_path / "report.html", [found], "ci", {"C-RP-10": "because"})
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 1
    assert "Fig. 1 &lt;&amp;&gt;" in page
    assert "src=" not in page
    assert "href=" not in page
    assert "because" in page
    assert "[rpj](../benchmarks/papers/rpj.py)" in list(markdown_table([found], {}))[-1]


def test_plots_of_any_values() -> None:
    for log_y in (False, True):
        for points in ([(0.0, 0.0)], [(1.0, 5.0)], [(0.0, 0.002), (3.0, 0.3)], [(10.0, 1e6), (20.0, 3e3)]):
            assert "polyline" in draw(Plot("Fig.", "x", "y", {"line": points}, log_y))


def test_a_spread() -> None:
    assert str(Spread.of([1, 2, 3])) == "2 (1 to 3)"
    assert str(Spread.of([2.0])) == "2"
    assert str(Spread.of([1234, 1236])) == "1,235 (1,234 to 1,236)"


def test_the_table() -> None:
    file = io.StringIO()
    print_findings(Console(file=file, width=160), [finding(True, False)])
    assert "conditional" in file.getvalue()
    assert "✗ setting 1: 1.0" in file.getvalue()


@pytest.mark.parametrize(("names", "scale"), [(["nothing"], "ci"), ([], "huge")])
def test_unknown_names(names: list[str], scale: str) -> None:
    with pytest.raises(InputError, match="there are"):
        papers(names, scale, Console())
    assert list(PAPERS) == ["diner", "miner", "rpj", "diag", "pmj", "spo"]
