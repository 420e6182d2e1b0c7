"""Checks what `memory=` promises about the process: how much its anonymous memory grows during a join.

    python -m benchmarks.memory_promise [--json FILE] [words of a case's name …]

Measured cases are added to FILE and are not measured again.
Each case runs in a separate process: twice with small inputs, so that kernels are compiled and libraries loaded, then
in full, while this process reads the other's RssAnon every few milliseconds. Tables belong to the caller and are not
counted; for files and sources everything counts, except for the batch that a source produces. Results are read batch by
batch and dropped; the table that `multijoin` returns belongs to the caller.
The limit is 1.1 times the budget plus a constant.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dovetail
from dovetail.errors import DovetailError

MB = 1_000_000
OVER, CONSTANT = 1.1, 64  # times the budget, and MB
EVERY_S = 0.004
CHUNK_ROWS = 1 << 16
LARGE_BATCHES = 4  # per input
BATCH_BYTES = 2 * MB  # size of a normal batch
WIDTH = 60  # bytes of a row
WARM = 4, 2  # MB of each input, and of the budget
FITS = 20  # MB of warm-up memory for an operator that does not spill

EQUALITY = "l.k = r.k"
BAND = "abs(l.k - r.k) <= 1"
TWO = "l.a < r.a AND l.b > r.b"
UNEQUAL = "l.k != r.k"
KINDS = {EQUALITY: "equality", BAND: "band", TWO: "two inequalities", UNEQUAL: "not equal"}
SEVERAL = ("multijoin", "progressive of three")


@dataclass(frozen=True)
class Case:
    """A join of two or three inputs of `mb` megabytes each."""

    call: str  # progressive, join, multijoin, progressive of three
    budget: int  # MB
    mb: int
    form: str = "tables"  # tables, one batch, parquet, one row group; sources: tiny, normal, large batches
    on: str = EQUALITY
    how: str = "inner"
    algorithm: str = "auto"
    width: int = WIDTH
    repeat: int = 1  # rows per key
    limit: int | None = None
    workers: int = 1

    @property
    def name(self) -> str:
        words = [self.call, f"{self.budget} MB", KINDS[self.on], self.how, self.algorithm, self.form]
        words += [f"{self.width} bytes"] * (self.width != WIDTH) + [f"x {self.repeat}"] * (self.repeat > 1)
        words += [f"limit {self.limit}"] * (self.limit is not None) + ["2 workers"] * (self.workers > 1)
        return ", ".join(words)

    @property
    def rows(self) -> int:
        return self.mb * MB // self.width

    @property
    def inputs(self) -> int:
        return 3 if self.call in SEVERAL else 2

    @property
    def allowed(self) -> float:
        """MB; includes a batch of each source if batches are large, and the result if it is a table."""
        batches = self.inputs * self.mb / LARGE_BATCHES if self.form == "large batches" else 0.0
        result = self.inputs * self.mb if self.call == "multijoin" else 0.0
        return OVER * self.budget + CONSTANT + batches + result


def progressive_cases(budget: int) -> Iterator[Case]:
    call, mb = "progressive", 2 * budget
    for algorithm in ("auto", "pmj", "xjoin", "hmj", "rpj", "dphj"):
        yield Case(call, budget, mb, algorithm=algorithm)
    for algorithm in ("diner", "diner_merge"):
        yield Case(call, budget, budget, algorithm=algorithm)
    for algorithm in ("pmj", "xjoin", "rpj"):
        yield Case(call, budget, mb, "normal", algorithm=algorithm)
    for form in ("normal", "one batch", "large batches", "parquet", "one row group"):
        yield Case(call, budget, mb, form)
    yield Case(call, budget, budget // 4, "tiny", algorithm="shj")
    yield Case(call, budget, budget // 2, "tiny")
    yield Case(call, budget, mb, on=BAND)
    yield Case(call, budget, budget // 5, on=TWO)
    yield Case(call, budget, budget // 20, on=UNEQUAL, width=500)
    for algorithm in ("auto", "pmj"):
        yield Case(call, budget, mb, how="full", algorithm=algorithm)
    for algorithm in ("auto", "pmj", "rpj"):
        yield Case(call, budget, budget, repeat=30, algorithm=algorithm)
    yield Case(call, budget, 8, repeat=1000, width=500)
    yield Case(call, budget, mb, "normal", width=2000)
    yield Case(call, budget, mb, algorithm="rpj", width=2000)
    yield Case(call, budget, mb, workers=2)
    for form in ("tables", "normal"):
        yield Case("progressive of three", budget, budget // 2, form)


def at_rest_cases(budget: int) -> Iterator[Case]:
    call, mb = "join", 4 * budget
    for form in ("tables", "one batch", "parquet", "one row group"):
        for on in (EQUALITY, BAND):
            yield Case(call, budget, mb, form, on)
    for form in ("tables", "parquet"):
        yield Case(call, budget, mb // 2, form, TWO)
        yield Case(call, budget, budget // 4, form, UNEQUAL, width=2000)
        yield Case(call, budget, mb, form, how="full")
        yield Case(call, budget, mb, form, BAND, how="left")
        yield Case(call, budget, mb, form, how="left_anti")
        yield Case(call, budget, mb, form, repeat=30)
        yield Case(call, budget, mb, form, width=2000)
        yield Case(call, budget, mb, form, limit=1000)
        yield Case(call, budget, mb // 2, form, algorithm="rpj")
        yield Case("multijoin", budget, budget // 2, form, width=1000)  # its result is a table


def cases() -> Iterator[Case]:
    for budget in (25, 100):
        yield from progressive_cases(budget)
        yield from at_rest_cases(budget)


def make_batches(rows: int, case: Case, seed: int) -> Iterator[pa.RecordBatch]:
    """Every key `repeat` times, in random order; a and b are nearly equal; a string fills up the row width."""
    rng = np.random.default_rng(seed)
    keys = rng.permutation(rows).astype(np.int64) // case.repeat
    near = rng.permutation(rows).astype(np.int64)
    length = case.width - 28
    for start in range(0, rows, CHUNK_ROWS):
        k, a = keys[start : start + CHUNK_ROWS].copy(), near[start : start + CHUNK_ROWS].copy()
        letters = rng.integers(97, 123, (len(k), length), dtype=np.uint8)
        ends = np.arange(len(k) + 1, dtype=np.int32) * length
        texts = pa.Array.from_buffers(pa.string(), len(k), [None, pa.py_buffer(ends), pa.py_buffer(letters.ravel())])
        yield pa.RecordBatch.from_pydict({"k": k, "a": a, "b": a + rng.integers(0, 4, len(k)), "s": texts})


def copy_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as a source produces them, each in newly allocated memory."""
    for batch in batches:
        yield batch.take(pa.array(np.arange(batch.num_rows)))


def make_input(case: Case, rows: int, seed: int, place: Path) -> Callable[[], Any]:
    """A function that creates the input of the call."""
    if case.form in ("parquet", "one row group"):
        path = place / f"{case.form}-{rows}-{seed}.parquet"
        table = pa.Table.from_batches(make_batches(rows, case, seed))
        pq.write_table(table, path, row_group_size=rows if case.form == "one row group" else CHUNK_ROWS)
        return lambda: str(path)
    table = pa.Table.from_batches(make_batches(rows, case, seed))
    if case.form == "tables":
        return lambda: table
    table = table.combine_chunks()
    if case.form == "one batch":
        if case.call == "join":
            return lambda: table
        return lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    size = {"tiny": 100, "normal": BATCH_BYTES // case.width, "large batches": -(-rows // LARGE_BATCHES)}[case.form]
    return lambda: pa.RecordBatchReader.from_batches(table.schema, copy_batches(table.to_batches(size)))


def count_results(case: Case, inputs: list[Any], memory: int) -> int:
    """Read all results and drop them."""
    options: dict[str, Any] = {"memory": memory, "algorithm": case.algorithm}
    if case.call in SEVERAL:
        named, on = dict(zip("abc", inputs, strict=True)), "a.k = b.k AND b.k = c.k"
        if case.call == "multijoin":
            return int(dovetail.multijoin(named, on, **options).num_rows)
        steps = dovetail.progressive(named, on=on, progress=False, **options)
    elif case.call == "join":
        left, right = inputs
        reader = dovetail.join(left, right, case.on, case.how, to="reader", limit=case.limit, **options)
        return sum(batch.num_rows for batch in reader)
    else:
        left, right = inputs
        steps = dovetail.progressive(left, right, case.on, case.how, progress=False, workers=case.workers, **options)
    return sum(step.batch.num_rows for step in steps)


def run_case(case: Case) -> None:
    """Run in the other process. It prints a line when it is ready and another when it is done, and waits after each."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        rows = min(WARM[0] * MB // case.width, case.rows // 2)
        memory = WARM[1] if case.algorithm != "shj" else FITS
        warm = [make_input(case, rows, seed, place) for seed in range(case.inputs)]
        for _ in range(2):
            count_results(case, [make() for make in warm], memory * MB)
        makers = [make_input(case, case.rows, seed, place) for seed in range(case.inputs)]
        inputs = [make() for make in makers]
        pa.default_memory_pool().release_unused()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.process_time()
        try:
            found: int | str = count_results(case, inputs, case.budget * MB)
        except DovetailError as error:
            found = f"{type(error).__name__}: {error}"
        print(json.dumps({"results": found, "cpu_s": time.process_time() - began}), flush=True)
        sys.stdin.readline()


@dataclass(frozen=True)
class Measured:
    name: str
    allowed: float  # MB
    grown: float  # MB
    results: int | str
    cpu_s: float

    @property
    def is_kept(self) -> bool:
        return isinstance(self.results, int) and self.grown <= self.allowed

    def __str__(self) -> str:
        found = f"{self.results:,}" if isinstance(self.results, int) else self.results
        verdict = "kept" if self.is_kept else "EXCEEDED"
        return (
            f"{self.name:76} {self.grown:5.0f} of {self.allowed:4.0f} MB {self.cpu_s:6.1f} s CPU {found:>12} {verdict}"
        )


def measure(case: Case) -> Measured:
    command = [sys.executable, "-m", "benchmarks.memory_promise", "--case", json.dumps(asdict(case))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
        told, tell = child.stdout, child.stdin
        assert told is not None
        assert tell is not None
        if told.readline() != "ready\n":
            raise RuntimeError(f"{case.name} did not start")
        status = Path(f"/proc/{child.pid}/status")
        before = most = anonymous_bytes(status)
        tell.write("\n")
        while not select.select([told], [], [], EVERY_S)[0]:
            most = max(most, anonymous_bytes(status))
        done = json.loads(told.readline())
        tell.write("\n")
    return Measured(case.name, case.allowed, (most - before) / MB, done["results"], done["cpu_s"])


def anonymous_bytes(status: Path) -> int:
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("RssAnon")]
    return 1024 * int(line.split()[1])


def main(words: list[str]) -> None:
    kept: Path | None = None
    if words[:1] == ["--json"]:
        kept, words = Path(words[1]), words[2:]
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    for case in cases():
        if case.name not in done and (case.name in words or all(word in case.name for word in words)):
            measured = measure(case)
            print(measured, flush=True)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(measured)) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        run_case(Case(**json.loads(sys.argv[2])))
    else:
        main(sys.argv[1:])
