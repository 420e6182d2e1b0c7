"""What `memory=` promises of the process: how much anonymous memory a join takes on top of what was there before.

    python -m benchmarks.memory_promise [--json FILE] [words of a case's name …]

Each case runs in a process of its own, once small so that kernels are compiled and libraries loaded, then in full, while
this process reads the other's RssAnon every few milliseconds. Tables are the caller's, made before; of paths and sources
everything counts. Results are taken batch by batch and dropped. Allowed are 1.1 times the budget and a constant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dovetail

MB = 1_000_000
OVER, CONSTANT = 1.1, 64 * MB
EVERY_S = 0.004
CHUNK_ROWS = 1 << 16
LARGE_BATCHES = 4  # that an input consists of

EQUALITY = "l.k = r.k"
BAND = "abs(l.k - r.k) <= 1"
TWO = "l.a < r.a AND l.b > r.b"
UNEQUAL = "l.k != r.k"


@dataclass(frozen=True)
class Case:
    """A join of two inputs (three for multijoin), each of `mb` megabytes."""

    call: str  # progressive, join, multijoin
    budget: int  # MB
    mb: int
    form: str = "tables"  # tables, tiny, normal, one batch, large batches, parquet, one row group
    on: str = EQUALITY
    how: str = "inner"
    algorithm: str = "auto"
    width: int = 60  # bytes of a row
    repeat: int = 1  # how often a key is there
    limit: int | None = None

    @property
    def name(self) -> str:
        on = {EQUALITY: "equality", BAND: "band", TWO: "two inequalities", UNEQUAL: "not equal"}.get(self.on, self.on)
        words = [self.call, f"{self.budget} MB", on, self.how, self.algorithm, self.form]
        extra = [f"{self.width} bytes" if self.width != 60 else "", f"x {self.repeat}" if self.repeat > 1 else "", "limit" if self.limit else ""]
        return ", ".join(words + [word for word in extra if word])

    @property
    def rows(self) -> int:
        return self.mb * MB // self.width

    @property
    def own(self) -> float:
        """MB of the batches that the sources make, one of each."""
        return 2 * self.mb / LARGE_BATCHES if self.form == "large batches" else 0.0


def cases() -> Iterator[Case]:
    for budget in (25, 100):
        mb = 2 * budget
        for algorithm in ("auto", "pmj", "xjoin", "hmj", "rpj", "dphj", "diner", "diner_merge"):
            yield Case("progressive", budget, mb if algorithm[:5] != "diner" else budget, algorithm=algorithm)
        for algorithm in ("pmj", "xjoin", "rpj"):
            yield Case("progressive", budget, mb, "normal", algorithm=algorithm)
        for form in ("normal", "one batch", "large batches", "parquet", "one row group"):
            yield Case("progressive", budget, mb, form)
        yield Case("progressive", budget, budget // 4, "tiny", algorithm="shj")
        yield Case("progressive", budget, budget, "tiny")
        yield Case("progressive", budget, mb, on=BAND)
        yield Case("progressive", budget, budget // 5, on=TWO)
        yield Case("progressive", budget, budget // 10, on=UNEQUAL, width=500)
        yield Case("progressive", budget, mb, how="full")
        yield Case("progressive", budget, mb, how="full", algorithm="pmj")
        for algorithm in ("auto", "pmj", "rpj"):
            yield Case("progressive", budget, budget, repeat=30, algorithm=algorithm)
        yield Case("progressive", budget, mb, "normal", width=2000)
        yield Case("progressive", budget, mb, width=2000, algorithm="rpj")
        yield Case("progressive", budget, 8, repeat=1000, width=500)
        yield Case("progressive of three", budget, budget // 2)
        yield Case("progressive of three", budget, budget // 2, "normal")
    for budget in (25, 100):
        mb = 4 * budget
        for form in ("tables", "one batch", "parquet", "one row group"):
            for on in (EQUALITY, BAND):
                yield Case("join", budget, mb, form, on)
        for form in ("tables", "parquet"):
            yield Case("join", budget, mb // 2, form, TWO)
            yield Case("join", budget, budget // 4, form, UNEQUAL, width=2000)
            yield Case("join", budget, mb, form, how="full")
            yield Case("join", budget, mb, form, BAND, how="left")
            yield Case("join", budget, mb, form, how="left_anti")
            yield Case("join", budget, mb, form, repeat=30)
            yield Case("join", budget, mb, form, width=2000)
            yield Case("join", budget, mb, form, limit=1000)
            yield Case("join", budget, mb // 2, form, algorithm="rpj")
            yield Case("multijoin", budget, budget, form)
            yield Case("multijoin", budget, budget // 2, form, algorithm="miner")


def make_batches(rows: int, case: Case, seed: int) -> Iterator[pa.RecordBatch]:
    """Every key `repeat` times, in random order; a text makes up the width."""
    rng = np.random.default_rng(seed)
    keys = rng.permutation(rows).astype(np.int64) // case.repeat
    text = case.width - 28
    # For two inequalities: few pairs, since a and b nearly agree.
    near = rng.permutation(rows).astype(np.int64)
    for start in range(0, rows, CHUNK_ROWS):
        k, a = keys[start : start + CHUNK_ROWS].copy(), near[start : start + CHUNK_ROWS].copy()
        letters = rng.integers(97, 123, (len(k), text), dtype=np.uint8)
        offsets = np.arange(len(k) + 1, dtype=np.int32) * text
        words = pa.Array.from_buffers(pa.string(), len(k), [None, pa.py_buffer(offsets), pa.py_buffer(letters.ravel())])
        columns = {"k": pa.array(k), "a": pa.array(a), "b": pa.array(a + rng.integers(0, 4, len(k))), "s": words}
        yield pa.RecordBatch.from_pydict(columns)


def copied(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as a source makes them: new memory that is nobody else's."""
    for batch in batches:
        yield batch.take(pa.array(np.arange(batch.num_rows)))
        del batch


def make_input(case: Case, rows: int, seed: int, place: Path) -> Callable[[], Any]:
    """What makes the input that the call is given."""
    if case.form in ("parquet", "one row group"):
        path = place / f"{case.form}-{rows}-{seed}.parquet"
        batches = make_batches(rows, case, seed)
        first = next(batches)
        if case.form == "parquet":
            with pq.ParquetWriter(path, first.schema) as writer:
                for batch in (first, *batches):
                    writer.write_batch(batch)
        else:
            pq.write_table(pa.Table.from_batches([first, *batches]), path, row_group_size=rows)
        return lambda: str(path)
    table = pa.Table.from_batches(make_batches(rows, case, seed))
    if case.form == "tables":
        return lambda: table
    if case.form == "one batch":
        table = table.combine_chunks()
        assert len(table.to_batches()) == 1
        return (lambda: table) if "join" in case.call else (lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    size = {"tiny": 100, "normal": 1 << 15, "large batches": max(1, rows // LARGE_BATCHES)}[case.form]
    return lambda: pa.RecordBatchReader.from_batches(table.schema, copied(table.combine_chunks().slice(0).to_batches(size)))


def results(case: Case, inputs: list[Any], memory: int) -> Iterator[int]:
    """The number of rows of each batch of results, which is dropped."""
    options: dict[str, Any] = {"memory": memory, "algorithm": case.algorithm}
    if case.call in ("multijoin", "progressive of three"):
        named, on = dict(zip("abc", inputs, strict=True)), "a.k = b.k AND b.k = c.k"
        if case.call == "multijoin":
            yield dovetail.multijoin(named, on, **options).num_rows
            return
        steps = dovetail.progressive(named, on=on, progress=False, **options)
    elif case.call == "join":
        reader = dovetail.join(*inputs, case.on, case.how, to="reader", limit=case.limit, **options)
        for batch in reader:
            yield batch.num_rows
            del batch
        return
    else:
        steps = dovetail.progressive(*inputs, case.on, case.how, progress=False, **options)
    for step in steps:
        yield step.batch.num_rows
        del step


def main_of_case(case: Case) -> None:
    """In the other process: wait for a line before and after the join."""
    count = 3 if case.call in ("multijoin", "progressive of three") else 2
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        warm = [make_input(case, max(1, 4 * MB // case.width), seed, place) for seed in range(count)]
        for _ in range(2):
            sum(results(case, [one() for one in warm], 2 * MB if case.algorithm != "shj" else 20 * MB))
        makers = [make_input(case, case.rows, seed, place) for seed in range(count)]
        inputs = [one() for one in makers]
        del warm
        pa.default_memory_pool().release_unused()
        print("ready", flush=True)
        sys.stdin.readline()
        before, cpu = time.perf_counter(), time.process_time()
        try:
            found: Any = sum(results(case, inputs, case.budget * MB))
        except dovetail.DovetailError as error:
            found = f"{type(error).__name__}: {error}"
        told = {"results": found, "seconds": time.perf_counter() - before, "cpu": time.process_time() - cpu}
        print(json.dumps(told), flush=True)
        sys.stdin.readline()


@dataclass
class Measured:
    name: str
    budget: int  # MB
    peak: float  # MB
    own: float  # MB of batches that are the sources'
    results: Any
    seconds: float
    cpu: float

    @property
    def allowed(self) -> float:
        return OVER * self.budget + CONSTANT / MB + self.own

    def __str__(self) -> str:
        verdict = "kept" if self.peak <= self.allowed else "EXCEEDED"
        found = f"{self.results:,}" if isinstance(self.results, int) else self.results
        return f"{self.name:78} {self.peak:6.0f} of {self.allowed:4.0f} MB  {self.cpu:5.1f} s CPU  {found:>12} {verdict}"


def measure(case: Case) -> Measured:
    command = [sys.executable, "-m", "benchmarks.memory_promise", "--case", json.dumps(case.__dict__)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RuntimeError(f"{case.name} did not start")
        status = Path(f"/proc/{child.pid}/status")
        before = peak = anonymous(status)
        child.stdin.write("\n")
        child.stdin.flush()
        import select

        while not select.select([child.stdout], [], [], EVERY_S)[0]:
            peak = max(peak, anonymous(status))
        told = json.loads(child.stdout.readline())
        child.stdin.write("\n")
    return Measured(case.name, case.budget, (peak - before) / MB, case.own, told["results"], told["seconds"], told["cpu"])


def anonymous(status: Path) -> int:
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("RssAnon")]
    return 1024 * int(line.split()[1])


def main(words: list[str]) -> None:
    kept: Path | None = None
    if words[:1] == ["--json"]:
        kept, words = Path(words[1]), words[2:]
    for case in cases():
        if case.name in words or all(word in case.name for word in words):
            measured = measure(case)
            print(measured, flush=True)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(measured.__dict__) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        main_of_case(Case(**json.loads(sys.argv[2])))
    else:
        main(sys.argv[1:])
