"""Runs entries: a contender on a case, at a size, for an output. Each runs in a fresh process, within limits.

An entry has figures, or one word for the reason why it has none, with details:

    cannot   the system does not support this case
    absent   its package is not installed here
    time, memory   a limit was exceeded
    error    it raised an exception
    wrong    its answer differs from that of the others
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.nonequi.case import FIRST_ROWS, WARM_ROWS, Case, write_tables
from benchmarks.nonequi.child import Task
from benchmarks.nonequi.contenders import find
from benchmarks.nonequi.environments import ROOT, has, python_of
from benchmarks.nonequi.limits import Ended, Limits, run_within

Entry = dict[str, Any]
KEY = ("case", "rows", "contender", "output")
NO_FIGURES = ("cannot", "absent", "time", "memory", "error")


def run_all(
    cases: Sequence[Case],
    contenders: Sequence[str],
    sizes: Sequence[int],
    outputs: Sequence[str],
    *,
    runs: int,
    limits: Limits,
    data: Path,
    file: Path,
    report: Callable[[Entry], None],
) -> dict[str, Any]:
    """Run all entries. The file is saved after each, so nothing is lost; entries that it already has are kept."""
    found: dict[str, Any] = read(file) if file.exists() else {"machine": describe_machine(), "entries": []}
    found |= {"limits": asdict(limits), "runs": runs}
    done = {key_of(entry) for entry in found["entries"]}
    for case in cases:
        for rows in [case.rows] if case.rows else sizes:
            for entry in _plan(case, rows, contenders, outputs):
                if key_of(entry) in done:
                    continue
                if "cannot" not in entry and "absent" not in entry:
                    entry |= _run(case, entry, runs, limits, data)
                found["entries"].append(entry)
                report(entry)
                write(found, file)
    mark_wrong_answers(found["entries"])
    write(found, file)
    return found


def key_of(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in KEY)


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def write(found: dict[str, Any], file: Path) -> None:
    """Write the file, one line per entry."""
    head = {name: value for name, value in found.items() if name != "entries"}
    lines = ",\n".join(json.dumps(entry) for entry in found["entries"])
    text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "entries": [\n{lines}\n]}}\n'
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(file)


def _plan(case: Case, rows: int, contenders: Iterable[str], outputs: Iterable[str]) -> Iterator[Entry]:
    for name in contenders:
        contender = find(name)
        for output in outputs:
            if output not in case.outputs:
                continue
            entry: Entry = {"case": case.name, "rows": rows, "contender": name, "output": output}
            if reason := contender.cannot(case):
                entry["cannot"] = reason
            elif not has(contender.environment, contender.packages[0]):
                entry["absent"] = contender.needs
            yield entry


def _run(case: Case, entry: Entry, runs: int, limits: Limits, data: Path) -> Entry:
    files, warm = (write_tables(case, rows, data) for rows in (entry["rows"], min(entry["rows"], WARM_ROWS)))
    task = Task(
        case.name, entry["contender"], entry["output"], (str(files.left), str(files.right)),
        (str(warm.left), str(warm.right)), runs,
    )  # fmt: skip
    started = {"started": datetime.now().astimezone().isoformat(timespec="seconds"), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="nonequi-") as directory:
        place = Path(directory)
        (place / "task.json").write_text(json.dumps(task._asdict()))
        command = [str(python_of(find(task.contender).environment)), "-m", "benchmarks.nonequi.child", directory]
        ended = run_within(command, ROOT, place / "phases", limits)
        measured = place / "measured.json"
        return started | outcome(ended, json.loads(measured.read_text()) if measured.exists() else None)


def outcome(ended: Ended, measured: Entry | None) -> Entry:
    """The figures of the child, or the reason why there are none."""
    if ended.excess:
        word, _, detail = ended.excess.partition(": ")
        return {word: detail}
    if measured is None or ended.code:
        return {"error": ended.last_line}
    return measured


def mark_wrong_answers(entries: Iterable[Entry]) -> None:
    """Mark answers that differ from the most frequent one; if two are equally frequent, mark all."""
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        entry.pop("wrong", None)
        if "answer" in entry:
            groups.setdefault((entry["case"], entry["rows"]), []).append(entry)
    for every in groups.values():
        group = [entry for entry in every if entry["output"] != "first"]
        for kind in ("rows", "checksum"):
            given = [entry for entry in group if entry["answer"][kind] is not None]
            votes = Counter(entry["answer"][kind] for entry in given).most_common(2)
            if len(votes) < 2:
                continue
            tie = votes[0][1] == votes[1][1]
            for entry in given:
                value = entry["answer"][kind]
                if tie or value != votes[0][0]:
                    entry.setdefault("wrong", f"{kind} {value:,}; most others have {votes[0][0]:,}")
        results = max((entry["answer"]["rows"] for entry in group if "wrong" not in entry), default=0)
        for entry in every:
            if entry["output"] == "first" and entry["answer"]["rows"] < min(FIRST_ROWS, results):
                entry["wrong"] = f"only {entry['answer']['rows']:,} rows"
