"""Runs one contender in a separate process: `python -m benchmarks.nonequi.child ENTRY`.

    load small tables, run once -> load the tables -> run -> compare -> measured.json
                                                       ^ measured

ENTRY is a directory with task.json. Each phase is appended to the file `phases`, so that the parent process knows which
limit applies.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import process_tree
from benchmarks.machine import versions
from benchmarks.nonequi.answer import Answer
from benchmarks.nonequi.case import FIRST_ROWS, Files
from benchmarks.nonequi.cases import CASES
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.contenders import find

SLOW_S = 5.0  # CPU seconds; slower queries run once


class Task(NamedTuple):
    case: str
    contender: str
    output: str
    files: tuple[str, str]
    warm_files: tuple[str, str]
    runs: int


def run(task: Task, entry: Path) -> dict[str, Any]:
    kind = find(task.contender)
    contender = kind(CASES[task.case])
    _enter(entry, "prepare")
    contender.load(_files(task.warm_files))
    _ask(contender, task.output)
    contender.load(_files(task.files))
    runs: list[dict[str, float]] = []
    result: Any = None
    for _ in range(task.runs):
        del result
        process_tree.forget_peaks()
        _enter(entry, "run")
        cpu, wall = process_tree.cpu_seconds(), time.perf_counter()
        result = _ask(contender, task.output)
        wall, cpu = time.perf_counter() - wall, process_tree.cpu_seconds() - cpu
        _enter(entry, "compare")
        runs.append({"cpu_s": cpu, "wall_s": wall, "peak_bytes": process_tree.peak_bytes()})
        if cpu > SLOW_S:
            break
    answer = contender.answer(result) if task.output == "rows" else Answer(result, None)
    return {"runs": runs, "answer": answer._asdict(), "versions": versions(kind.packages)}


def _ask(contender: Contender, output: str) -> Any:
    match output:
        case "rows":
            return contender.rows()
        case "count":
            return contender.count()
    return contender.first(FIRST_ROWS)


def _files(names: tuple[str, str]) -> Files:
    return Files(*map(Path, names))


def _enter(entry: Path, phase: str) -> None:
    with (entry / "phases").open("a") as phases:
        phases.write(f"{phase}\n")


def main(place: str) -> None:
    entry = Path(place)
    task = Task(**json.loads((entry / "task.json").read_text()))
    (entry / "measured.json").write_text(json.dumps(run(task, entry)))


if __name__ == "__main__":
    main(sys.argv[1])
