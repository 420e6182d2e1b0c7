"""Decides whether to use Diag-Join, with which window, and how to divide the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dovetail.condition import Condition, describe
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.diag.clusteredness import Clusteredness, measure
from dovetail.diag.ring import ROW_BYTES, Repeats
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.planning.kernel_plans import checked_beside
from dovetail.planning.plan import Choice, Diagonal, JoinPlan
from dovetail.sources.parquet_files import ParquetSource
from dovetail.sources.protocol import Scan


def diag_transfers(one: float, many: float, mishits: float, *, coupled: bool = False) -> float:
    """Pages read and written. Coupled: mishits go directly to their partitions, which saves a write and a read."""
    again = 3 * one if mishits else 0.0
    return one + many + again + (2 if coupled else 4) * mishits * many


def grace_transfers(one: float, many: float) -> float:
    return 3 * (one + many)


TABLES = 5  # section 4.3: few enough to probe, enough to slide in small steps
PAYS = 0.75  # diag is chosen below this share of what a hash join on disk reads and writes
LARGER = 1.5  # times the sufficient window, if that leaves no mishits: then R1 is not read again
MARGIN = 1.05  # times the largest deviation of the sample
GOOD_ROWS = 1 << 15  # rows of a table: with fewer, sliding the window costs more than the join
SMALL_WINDOW = 0.1  # share of the side with the key: GOOD_ROWS does not make the window larger than this
MOST_WINDOW = 0.5  # share of the side with the key: with a larger window, it could as well be loaded whole
REPEATED = "such rows are joined at the end, which is correct but slow"
WINDOW, NOTES, BLOCK, CHUNK = 2, 4, 32, 8  # divisors of the memory
LEAST_ROWS, MOST_ROWS = 1 << 10, 1 << 15  # rows read at once

Scans = tuple[Scan, Scan]
Measure = Callable[[Condition, Scans, Side], Clusteredness]


@dataclass(frozen=True, slots=True)
class Wish:
    """The caller's options: the window as a share of the side with the key, that side, and the number of tables."""

    share: float | None = None
    one: str | None = None
    tables: int = TABLES

    @property
    def side(self) -> Side | None:
        return None if self.one is None else Side.LEFT if self.one == "left" else Side.RIGHT

    @classmethod
    def from_options(cls, **options: Any) -> Wish:
        unknown = sorted(options.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InputError(f"{', '.join(unknown)}: not an option of algorithm='diag'. The options are {known}.")
        wish = cls(**{name: value for name, value in options.items() if value is not None})
        if wish.share is not None and not 0 < wish.share <= 1:
            raise InputError(f"share must be more than 0 and at most 1; got {wish.share!r}.")
        if wish.one not in (None, "left", "right"):
            raise InputError(f"one must be 'left' or 'right', the side with the unique key; got {wish.one!r}.")
        if wish.tables < 1:
            raise InputError(f"tables must be positive; got {wish.tables!r}.")
        return wish


@dataclass(frozen=True, slots=True)
class ScanDiagonals:
    """Plans for rows that are read in process: for tables on request, for files also if it pays."""

    scans: Scans
    look: bool = False  # measure clusteredness even if the window is given

    def plan(
        self, condition: Condition, how: str, memory_bytes: int | None, parameters: Mapping[str, Any], *, asked: bool
    ) -> tuple[JoinPlan | None, tuple[str, ...]]:
        if asked:
            wish = Wish.from_options(**parameters)
            plan = plan_diagonal(condition, how, self.scans, wish, memory_bytes, look=self.look, good_rows=GOOD_ROWS)
            return plan, ()
        if not any(isinstance(scan, ParquetSource) for scan in self.scans):
            return None, ()
        return choose_diagonal(condition, how, self.scans, memory_bytes, good_rows=GOOD_ROWS)


def plan_diagonal(
    condition: Condition,
    how: str,
    scans: Scans,
    wish: Wish,
    memory_bytes: int | None,
    *,
    look: bool = True,
    measure: Measure = measure,
    good_rows: int = 1,
) -> JoinPlan:
    """The plan of a Diag-Join that was requested. `look`: measure clusteredness even if the window is given.

    `good_rows`: rows of a table, if that does not make the window large.
    """
    if not condition.equalities:
        raise PlanError(f"algorithm='diag' cannot run {condition.text}: it needs an equality between the two sides.")
    seen = _look(condition, scans, wish.side, measure) if look or wish.share is None else None
    advice = (f"keys of {seen.one.alias} repeat: {REPEATED}",) if seen is not None and seen.repeated else ()
    return _plan(condition, how, scans, wish, memory_bytes, seen, "asked for", advice, good_rows)


def choose_diagonal(
    condition: Condition,
    how: str,
    scans: Scans,
    memory_bytes: int | None,
    *,
    notes: bool = True,
    measure: Measure = measure,
    good_rows: int = 1,
) -> tuple[JoinPlan | None, tuple[str, ...]]:
    """The plan of a Diag-Join if it pays; otherwise None and the reasons.

    `notes`: part of the memory is used to detect repeated keys. `good_rows` as for `plan_diagonal`.
    """
    rows, wish = [scan.rows for scan in scans], Wish()
    if not condition.equalities or not all(rows):
        return None, ()
    seen = _look(condition, scans, None, measure)
    if seen.repeated:
        return None, ("not along the diagonal: keys repeat on both sides",)
    if notes and memory_bytes is not None and memory_bytes < least_bytes(seen.rows):
        return None, ("not along the diagonal: the memory is too small to check that keys are unique",)
    plan = _plan(condition, how, scans, wish, memory_bytes, seen, "", (), good_rows)
    assert plan.diagonal is not None
    mishits = plan.diagonal.mishits or 0.0
    sizes = (scans[seen.one].total_bytes(), scans[seen.one.other].total_bytes())
    ours, theirs = diag_transfers(*sizes, mishits, coupled=True), grace_transfers(*sizes)
    wide = plan.diagonal.window_share
    if ours > PAYS * theirs or wide > MOST_WINDOW:
        return None, (f"not along the diagonal: {seen.text}; {mishits:.1%} mishits in a window of {wide:.1%}",)
    why = f"the files are clustered alike: {ours / theirs:.0%} of the I/O of a hash join on disk"
    return replace(plan, operator=Choice("diag", why)), ()


def _plan(
    condition: Condition,
    how: str,
    scans: Scans,
    wish: Wish,
    memory_bytes: int | None,
    seen: Clusteredness | None,
    why: str,
    advice: tuple[str, ...],
    good_rows: int,
) -> JoinPlan:
    one = wish.side if wish.side is not None else _smaller(scans) if seen is None else seen.one
    rows = scans[one].rows
    if wish.share is not None:
        table_rows = -(-int(wish.share * rows) // wish.tables)
    else:
        assert seen is not None
        good = min(good_rows, int(SMALL_WINDOW * rows) // wish.tables)
        wanted = max(_sufficient(seen, wish.tables), good)
        table_rows = min(wanted, fitting_rows(scans[one], wish.tables, memory_bytes))
    table_rows = max(1, min(table_rows, rows))
    expected = None if seen is None else seen.mishits(wish.tables, table_rows)
    driven = condition.equalities
    return JoinPlan(
        Graph.of(condition),
        JoinType.read(how),
        Choice("diag", why),
        driven=tuple(describe(p) for p in driven),
        checked=checked_beside(condition, driven),
        memory_bytes=memory_bytes,
        diagonal=Diagonal(one, wish.tables, table_rows, rows, "" if seen is None else seen.text, expected),
        advice=advice,
    )


def _look(condition: Condition, scans: Scans, one: Side | None, measure: Measure) -> Clusteredness:
    """Measure with the smaller side as R1, or with the other one if only the smaller one has repeated keys."""
    if one is not None:
        return measure(condition, scans, one)
    seen = measure(condition, scans, _smaller(scans))
    if seen.repeated:
        other = measure(condition, scans, seen.one.other)
        if not other.repeated and len(other.deviations):
            return other
    return seen


def _smaller(scans: Scans) -> Side:
    return Side.LEFT if scans[0].rows <= scans[1].rows else Side.RIGHT


def _sufficient(seen: Clusteredness, tables: int) -> int:
    enough, all_of_them = seen.table_rows(tables), int(MARGIN * seen.table_rows(tables, accept=0.0)) + 1
    return all_of_them if all_of_them <= LARGER * enough else enough


@dataclass(frozen=True, slots=True)
class DiagMemory:
    """The memory limit of each part. Without a limit, the window takes what it needs.

    Half is for the window and the table being filled, a quarter for detecting repeated keys, the rest for current
    batches and mishits.
    """

    batch_rows: tuple[int, int]  # of R1 and RN
    table_bytes: int
    aside_bytes: int  # mishits that wait to be written
    chunk_bytes: int  # mishits that are joined at once
    partitions: int

    @classmethod
    def divide(cls, memory_bytes: int | None, window: Diagonal, one: Scan, many: Scan) -> DiagMemory:
        most_rows = (max(LEAST_ROWS, min(MOST_ROWS, window.table_rows)), MOST_ROWS)  # at most a table at once
        if memory_bytes is None:
            return cls(most_rows, 1 << 30, 1 << 26, 1 << 28, 16)  # strings have 32-bit offsets
        if memory_bytes < least_bytes(one.rows):
            raise BudgetError(
                f"diag keeps 6 bytes for each of the {one.rows:,} rows of the side with the key, in a quarter of its "
                f"memory: give it {least_bytes(one.rows):,} bytes or more, or choose another algorithm."
            )
        sizes = [scan.total_bytes() for scan in (one, many)]
        block, chunk = memory_bytes // BLOCK, memory_bytes // CHUNK
        rows = [
            max(1, min(most, block * scan.rows // max(1, size)))
            for scan, size, most in zip((one, many), sizes, most_rows, strict=True)
        ]
        partitions = min(64, max(4, -(-sizes[1] // chunk)))
        return cls((rows[0], rows[1]), memory_bytes // WINDOW // (window.tables + 1), block, chunk, partitions)


def least_bytes(rows: int) -> int:
    """The memory that a join needs, if the side with the key has this number of rows."""
    return NOTES * Repeats.nbytes_for(rows)


def fitting_rows(scan: Scan, tables: int, memory_bytes: int | None) -> int:
    """The rows per table such that the whole window fits in its share of the memory."""
    if memory_bytes is None:
        return scan.rows
    return memory_bytes // WINDOW // (tables + 1) // (scan.total_bytes() // max(1, scan.rows) + ROW_BYTES)
