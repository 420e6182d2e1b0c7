import subprocess
import sys
from pathlib import Path

import pytest
from tests.effort import ALL
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # its own server, and a second JVM


def test_joins_in_a_connect_session(tmp_path: Path) -> None:
    job = [sys.executable, str(Path(__file__).with_name("connect_job.py")), str(tmp_path), *["all"] * ALL]
    run = subprocess.run(job, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr[-4000:]
