"""Write tests/seconds.json, the durations of slower tests, from the reports of a run on an otherwise idle machine.

    make test && python -m tools.write_seconds

Tests that were not part of that run keep the durations of an earlier run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from tools.run_tests import REPORTS, ROOT

SECONDS = ROOT / "tests" / "seconds.json"
LEAST = 1.0  # faster tests are left out to keep the file short


def measured(reports: list[Path]) -> dict[str, float]:
    """Seconds per test, over all its cases, by file and name. A case that ran also stands for those left out."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            module, name = str(case.get("classname")), str(case.get("name")).partition("[")[0]
            stands_for = case.find("properties/property[@name='stands for']")
            times = float(stands_for.get("value", 1)) if stands_for is not None else 1.0
            seconds[f"{module.replace('.', '/')}.py::{name}"] += float(case.get("time", 0)) * times
    return seconds


def write(reports: list[Path], path: Path) -> None:
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    seconds = {test: taken for test, taken in {**known, **measured(reports)}.items() if _exists(test)}
    kept = {test: round(seconds[test], 1) for test in sorted(seconds) if seconds[test] >= LEAST}
    path.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


if __name__ == "__main__":
    write([REPORTS / "core.xml", REPORTS / "spark.xml"], SECONDS)
