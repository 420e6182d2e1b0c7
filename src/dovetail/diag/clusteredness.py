"""Measures how alike two tables are clustered: the positions of partners, compared with the diagonal.

    deviation = position of the partner in R1 - floor(position in RN * |R1| / |RN|)

Rows of RN are read at some places (or all of them); their partners are found in one pass over the keys of R1. Filters
do not change deviations, since positions also count filtered rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.diag.ring import FOREVER, Positions
from dovetail.matching.equal_keys import HashKeys
from dovetail.planning.statistics import read_columns
from dovetail.sources.protocol import Place, Scan, read_some
from dovetail.storage.hash_table import Hashes, HashTable


def expected_mishits(tables: int, table_rows: int, deviations: NDArray[np.int64]) -> float:
    """The share of mishits for these deviations, if all places in the middle table are equally likely.

    The window reaches (u + floor(l/2) h) rows back and (h - 1 - u + floor(l/2) h) ahead of place u of the middle table.
    """
    if not len(deviations):
        return 0.0
    half = tables // 2
    ahead = half - (tables % 2 == 0)  # an even number of tables has one less after the middle
    reach = np.where(deviations < 0, half, ahead)
    hit = np.clip(reach + 1 - np.abs(deviations) / table_rows, 0, 1)
    return float(1 - hit.mean())


def sufficient_rows(tables: int, deviations: NDArray[np.int64], accept: float) -> int:
    """The smallest number of rows per table with at most this share of mishits (section 3.5)."""
    low, high = 1, 1 + int(np.abs(deviations).max(initial=0))
    while low < high:
        between = (low + high) // 2
        if expected_mishits(tables, between, deviations) <= accept:
            high = between
        else:
            low = between + 1
    return low


PLACES = 16  # at which RN is sampled
PLACE_ROWS = 2048
BATCH_ROWS = 1 << 17
ACCEPTED = 0.01  # the accepted share of mishits that determines the window
CAUTION = 0.75  # the share of that to aim at: a sample is not the whole table
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Clusteredness:
    one: Side
    rows: int  # of R1
    sampled: int  # rows of RN with a key
    deviations: NDArray[np.int64]  # deviations of rows with a partner
    repeated: int  # rows of RN with several partners: R1 has no unique key, so diag is not suitable

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Quantiles of the absolute deviations, as shares of R1."""
        if not len(self.deviations):
            return tuple(0.0 for _ in QUANTILES)
        return tuple((np.quantile(np.abs(self.deviations), QUANTILES) / max(1, self.rows)).tolist())

    @property
    def alone(self) -> float:
        """The share of RN without a partner: these rows are mishits with any window."""
        return 1 - len(self.deviations) / self.sampled if self.sampled else 0.0

    def mishits(self, tables: int, table_rows: int) -> float:
        """The expected share of mishits in RN."""
        return self.alone + (1 - self.alone) * expected_mishits(tables, table_rows, self.deviations)

    def table_rows(self, tables: int, accept: float = ACCEPTED) -> int:
        """The smallest tables such that, of the rows with a partner, at most the accepted share are mishits."""
        return sufficient_rows(tables, self.deviations, CAUTION * accept)

    @property
    def text(self) -> str:
        shares = ", ".join(f"{q:.0%} within {at:.2%}" for q, at in zip(QUANTILES, self.quantiles, strict=True))
        return f"of {self.sampled:,} partners {shares} of {self.one.alias} from the diagonal"


def measure(condition: Condition, scans: tuple[Scan, Scan], one: Side, places: int | None = PLACES) -> Clusteredness:
    """Sample RN at some places, or read all of it (the paper's histogram, section 3.5)."""
    sampled = sample(condition, scans[one.other], one.other, places)
    rows = scans[one].places(BATCH_ROWS, read_columns(condition, one))
    return clusteredness(scans, one, sampled, partners_in(condition, one, sampled, rows))


class Sampled(NamedTuple):
    """Rows of RN that have a key."""

    hashes: Hashes
    positions: Positions


class PartnerSample(NamedTuple):
    """For each sampled row, its first partner in a part of R1, and how many partners it has there."""

    first: Positions  # far away if there is none
    times: Positions

    def __add__(self, other: object) -> PartnerSample:
        assert isinstance(other, PartnerSample)
        return PartnerSample(np.minimum(self.first, other.first), self.times + other.times)


def partners_in(condition: Condition, one: Side, sampled: Sampled, rows_of_one: Iterable[Place]) -> PartnerSample:
    """Find the partners of a sample in some rows of R1."""
    keys, table = HashKeys(condition), HashTable()
    distinct, which = np.unique(sampled.hashes, return_inverse=True)  # pairs of repeated keys would be too many
    table.insert(distinct)
    first = np.full(len(distinct), FOREVER)
    count = np.zeros(len(distinct), np.int64)
    for position, batch in rows_of_one:
        rows, theirs = keys.hash(one, batch)
        for probing, mine in table.find(theirs, BATCH_ROWS):
            np.minimum.at(first, mine, position + (probing if rows is None else rows[probing]))
            count += np.bincount(mine, minlength=len(count))
    return PartnerSample(first[which], count[which])


def clusteredness(scans: tuple[Scan, Scan], one: Side, sampled: Sampled, found: PartnerSample) -> Clusteredness:
    """The clusteredness, given the partners in all of R1."""
    known = found.times > 0
    expected = sampled.positions[known] * scans[one].rows // max(1, scans[one.other].rows)
    repeated = int((found.times > 1).sum())
    return Clusteredness(one, scans[one].rows, len(known), found.first[known] - expected, repeated)


def sample(condition: Condition, scan: Scan, side: Side, places: int | None = PLACES) -> Sampled:
    """Rows of RN at some places, or all rows."""
    keys, columns = HashKeys(condition), read_columns(condition, side)
    looks: Iterator[tuple[int, pa.RecordBatch]]
    if places is None or scan.rows <= places * PLACE_ROWS:
        looks = scan.places(BATCH_ROWS, columns)
    else:
        starts = [scan.rows * (2 * k + 1) // (2 * places) - PLACE_ROWS // 2 for k in range(places)]
        looks = read_some(scan, columns, starts, PLACE_ROWS)
    hashes, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for position, batch in looks:
        rows, found = keys.hash(side, batch)
        hashes.append(found)
        positions.append(position + (np.arange(batch.num_rows) if rows is None else rows))
    return Sampled(np.concatenate(hashes), np.concatenate(positions))
