"""`make test`: a part that fails or dies does not stop the others, and the summary names every failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.effort import ALL, some
from tests.seed import SEED, generator, seeded
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
    monkeypatch.setattr(run_tests, "compile_kernels", lambda: None)
    monkeypatch.setattr(run_tests, "REPORTS", tmp_path / "reports")
    monkeypatch.setenv("DOVETAIL_TEST_SEED", "0")  # restored afterwards
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its imports take longer than the tests
    return found


def test_all_parts_run(parts: dict[str, Part], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main([*parts, "--seed", "7"]) == 1
    summary = capfd.readouterr().out.partition("==> summary\n")[2].splitlines()
    assert [line.rpartition(",")[0] for line in summary[:3]] == [
        "the failing part           1 passed, 1 failed, 0 skipped",
        "the dying part             0 passed, 0 failed, 0 skipped",
        "the passing part           1 passed, 0 failed, 1 skipped",
    ]
    assert "did not run to its end (exit code 3)" in summary[1]
    assert summary[3:] == [
        "FAILED test_failing::test_wrong",
        "2 passed, 1 failed, 1 skipped",
        "seed 7: make test SEED=7",
    ]


def test_parts_on_spark_run_beside_the_others(
    parts: dict[str, Part], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "files_with_spark_tests", list)
    parts["passing"] = parts["passing"]._replace(files=run_tests.files_with_spark_tests)
    assert run_tests.main(["passing", "dying"]) == 1
    printed = capfd.readouterr().out
    assert printed.index("==> the dying part") < printed.index("==> the passing part") < printed.index("==> summary")


def test_what_passes_ends_well(parts: dict[str, Part]) -> None:
    assert run_tests.main(["passing"]) == 0
    with pytest.raises(SystemExit, match="2"):
        run_tests.main(["unknown"])


@pytest.mark.skipif(ALL, reason="takes all cases")
@pytest.mark.parametrize("of", [1, 3, 19])
def test_over_the_turns_every_case_comes_once(of: int) -> None:
    chosen = [case for turn in range(of) for case in some(range(10), turn, of)]
    assert sorted(chosen) == list(range(10))


def test_random_numbers_depend_on_the_seed_and_the_key_alone() -> None:
    assert seeded("a", 1).random() == seeded("a", 1).random() != seeded("a", 2).random()
    assert generator("a", 1).random() == generator("a", 1).random() != generator("a", 2).random()
    command = [sys.executable, "-c", "from tests.seed import *; print(SEED, seeded('a').random())"]
    printed = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(SEED), str(seeded("a").random())]
