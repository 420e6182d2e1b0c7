"""`make test`: a part that fails, or that dies, stops none of the others, and the summary names every failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import run_tests
from tools.run_tests import Part

FAILING = "def test_right():\n    pass\n\ndef test_wrong():\n    assert 1 == 2\n"
DYING = "import os\n\ndef test_death():\n    os._exit(3)\n"
PASSING = "import pytest\n\ndef test_right():\n    pass\n\ndef test_other():\n    pytest.skip('not here')\n"


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    found = {}
    for name, text in (("failing", FAILING), ("dying", DYING), ("passing", PASSING)):
        path = tmp_path / f"test_{name}.py"
        path.write_text(text)
        options = ("-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", str(tmp_path / "none.ini"), str(path))
        found[name] = Part(f"the {name} part", options)
    (tmp_path / "none.ini").write_text("[pytest]\n")
    monkeypatch.setattr(run_tests, "PARTS", found)
    monkeypatch.setattr(run_tests, "REPORTS", tmp_path / "reports")
    return found


def test_all_parts_run(parts: dict[str, Part], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(list(parts)) == 1
    summary = capfd.readouterr().out.partition("==> summary\n")[2].splitlines()
    assert [line.rpartition(",")[0] for line in summary[:3]] == [
        "the failing part           1 passed, 1 failed, 0 skipped",
        "the dying part             0 passed, 0 failed, 0 skipped",
        "the passing part           1 passed, 0 failed, 1 skipped",
    ]
    assert "did not run to its end (exit code 3)" in summary[1]
    assert summary[3:] == ["FAILED test_failing::test_wrong", "2 passed, 1 failed, 1 skipped"]


def test_what_passes_ends_well(parts: dict[str, Part]) -> None:
    assert run_tests.main(["passing"]) == 0
    assert run_tests.main(["dying"]) == 1
    assert run_tests.main(["unknown"]) == 2
