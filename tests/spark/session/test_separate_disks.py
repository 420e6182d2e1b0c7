"""Workers and Connect servers on separate machines: exact results, or a clear error at the call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
JOB = "tests.spark.session.separate_disks_job"


@pytest.mark.parametrize("kind", ["cluster", "connect"])
def test_joins_on_separate_disks(kind: str, tmp_path: Path) -> None:
    from tests.spark.session.separate_disks import why_not

    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "own").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "own")}
    job = [sys.executable, "-m", JOB, kind, str(tmp_path)]
    run = subprocess.run(job, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-8000:]
