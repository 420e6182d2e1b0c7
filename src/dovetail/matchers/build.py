"""From a condition and two batches to a matcher.

    filters, null keys --> rows that can match --> codes --> kernel --> candidates --> checks --> pairs

Where equalities stand beside another predicate, rows are grouped by the equal keys first: large groups run the other
predicate's kernel, in small ones every pair is a candidate that is checked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, Less, matching
from dovetail.condition.expression import type_of
from dovetail.kernels import band, windows
from dovetail.kernels.windows import Windows
from dovetail.keys import is_fixed
from dovetail.matchers.driving import Drive, choose_drive, to_check
from dovetail.matchers.listed import Prepared
from dovetail.matchers.operands import Batches, Operands, read_operands
from dovetail.matchers.parts import Part, Parts
from dovetail.matchers.prepare import listed

COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
SAMPLE = 4096  # random pairs on which inequalities are compared
LARGE_GROUP = 1 << 14  # pairs of equal keys from which on a kernel is worth its preparation


def build_matcher(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> Parts:
    """A matcher for two complete sides."""
    batches = (left, right)
    drive = choose_drive(condition)
    operands = read_operands(condition, batches, drive.equal_keys, drive.ordered_keys, drive.is_metric)
    if not operands.complete:  # decimals too long to subtract: every pair is a candidate
        drive = replace(drive, kind="none", predicates=())
    drive, operands = _narrowed(drive, operands)
    if operands.equal is None:
        part = Part(listed(drive, operands, batches), operands.rows, to_check(condition, drive.predicates))
        return Parts(batches, (part,))
    equal = band.prepare(*operands.equal, 0, 0)
    exact = _same_keys(drive, equal, operands, batches)
    covered = drive.equal if exact else ()
    if drive.kind == "none":
        return Parts(batches, (Part(Prepared(windows, equal), operands.rows, to_check(condition, covered)),))
    return Parts(batches, tuple(_groups(condition, drive, equal, operands, batches, exact)))


def _narrowed(drive: Drive, operands: Operands) -> tuple[Drive, Operands]:
    """Of three and more inequalities only two."""
    if drive.kind != "two_inequalities" or len(drive.predicates) == 2:
        return drive, operands
    best = most_selective(drive, operands)
    return (
        replace(drive, predicates=tuple(drive.predicates[i] for i in best)),
        operands._replace(ordered=tuple(operands.ordered[i] for i in best)),
    )


def most_selective(drive: Drive, operands: Operands) -> list[int]:
    """Which two inequalities the fewest random pairs satisfy; the first two, if there are no rows."""
    if not all(len(rows) for rows in operands.rows):
        return [0, 1]
    rng = np.random.default_rng(0)
    lefts, rights = (rng.integers(0, len(rows), SAMPLE) for rows in operands.rows)
    passing = []
    for predicate, (left, right) in zip(drive.predicates, operands.ordered, strict=True):
        assert isinstance(predicate, Less)
        passing.append(int(COMPARE[predicate.operator](left[lefts], right[rights]).sum()))
    return sorted(np.argsort(passing, kind="stable")[:2].tolist())


def _same_keys(drive: Drive, equal: Windows, operands: Operands, batches: Batches) -> bool:
    """Whether all rows that share a code share their keys too, so that no candidate has to be checked.

    Codes of a single key of fixed width are exact. With hashes, every row of a group is compared with one row of the
    other side.
    """
    if len(drive.equal) == 1 and is_fixed(type_of(drive.equal[0].left)):
        return True
    partnered = np.flatnonzero(equal.ends > equal.starts)
    starts, ends = equal.starts[partnered], equal.ends[partnered]
    first = np.flatnonzero(np.diff(starts, prepend=-1))  # equal codes have the same window
    widths = (ends - starts)[first]
    offsets = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
    lefts = np.concatenate([equal.left[partnered], np.repeat(equal.left[partnered[first]], widths)])
    rights = np.concatenate([equal.right[starts], equal.right[np.repeat(starts[first], widths) + offsets]])
    sources = tuple(source for predicate in drive.equal for source in predicate.source)
    rows = operands.rows
    return bool(matching(sources, batches[0], rows[0][lefts], batches[1], rows[1][rights]).all())


def _groups(
    condition: Condition, drive: Drive, equal: Windows, operands: Operands, batches: Batches, exact: bool
) -> list[Part]:
    """One part for all small groups of equal keys, and one for each large group."""
    partnered = np.flatnonzero(equal.ends > equal.starts)
    starts = equal.starts[partnered]
    first = np.flatnonzero(np.diff(starts, prepend=-1))  # equal keys have the same window
    lengths = np.diff(np.append(first, len(starts)))
    widths = (equal.ends - equal.starts)[partnered][first]
    large = lengths.astype(np.int64) * widths >= LARGE_GROUP
    small = partnered[np.repeat(~large, lengths)]
    rest = Windows(equal.left[small], equal.right, equal.starts[small], equal.ends[small])
    covered = drive.equal if exact else ()
    parts = [Part(Prepared(windows, rest), operands.rows, to_check(condition, covered))]
    for group in np.flatnonzero(large).tolist():
        members = partnered[first[group] : first[group] + lengths[group]]
        lefts = equal.left[members]
        rights = equal.right[equal.starts[members[0]] : equal.ends[members[0]]]
        inside = Operands(
            (operands.rows[0][lefts], operands.rows[1][rights]),
            None,
            tuple((left[lefts], right[rights]) for left, right in operands.ordered),
        )
        checks = to_check(condition, (*covered, *drive.predicates))
        parts.append(Part(listed(drive, inside, batches), inside.rows, checks))
    return parts
