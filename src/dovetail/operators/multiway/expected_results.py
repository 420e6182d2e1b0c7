"""Ranks rows for eviction by worth: the expected number of future results of each row, over the whole join.

A resident row yields a result when rows of the other inputs complete it: one that arrives, and resident rows of all
others. The condition's links are treated as a tree. Two sums are propagated along every link, over the input behind it
and all inputs behind that (as when counting the results of a tree-shaped join without enumerating them):

    held(key)     combinations of resident rows behind the link that match the key
    coming(key)   the same with one row still to arrive, predicted from the arrivals so far

    worth of a row = sum over its links of coming(link) x the product of held over its other links

A block of the rows with the least worth is evicted; the input whose block is worth the least is the victim. Inputs are
not kept at equal sizes: a few rows of an input that all others need can be worth more than many rows of another.

The frequency of a key is counted for equalities, and estimated from a sample of arrivals for ranges. The matches of an
arriving row behind its other links are estimated by the mean over the sample. Counts and samples take a share of the
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows
from dovetail.kernels.hashing import hash_codes
from dovetail.matching.expansion import Partial, ProbeTable
from dovetail.matching.links import Attribute, Codes, Link
from dovetail.matching.residents import Batch
from dovetail.operators.multiway.multiway import Multiway
from dovetail.storage.blocks import Block, BlockStore

LINES = 2
BYTES = 2  # per counter
FULL = 2**15
UNSEEN = 0.5  # the assumed count of a key that has not arrived yet


class KeyCounts:
    def __init__(self, width: int) -> None:
        self._counts = np.zeros((LINES, width), np.uint16)
        self._total = 0

    def add(self, codes: Codes) -> None:
        codes, times = np.unique(codes, return_counts=True)
        places = self._places(codes)
        # Conservative update: a counter never exceeds the number of times that the code raising it can have occurred.
        counted = np.min([line[at] for line, at in zip(self._counts, places, strict=True)], axis=0) + times
        for line, at in zip(self._counts, places, strict=True):
            np.maximum.at(line, at, counted.astype(np.uint16))
        self._total += int(times.sum())
        if self._counts.max() >= FULL:
            self._counts >>= 1
            self._total //= 2

    def share(self, codes: Codes) -> NDArray[np.float64]:
        """The expected share of future rows for each code."""
        found = np.min([line[places] for line, places in zip(self._counts, self._places(codes), strict=True)], axis=0)
        share: NDArray[np.float64] = (found + UNSEEN) / (self._total + 1)
        return share

    def to_bytes(self) -> bytes:
        return self._counts.tobytes()

    @property
    def total(self) -> int:
        return self._total

    @classmethod
    def read(cls, counts: bytes, total: int) -> KeyCounts:
        """Restore the counts from bytes."""
        found = cls(0)
        found._counts = np.frombuffer(counts, np.uint16).reshape(LINES, -1).copy()
        found._total = total
        return found

    def _places(self, codes: Codes) -> list[NDArray[np.int64]]:
        hashes = hash_codes(np.ascontiguousarray(codes)).view(np.uint64)
        width = np.uint64(self._counts.shape[1])
        return [(half % width).astype(np.int64) for half in (hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF))]


DECAY = 0.9  # the weight of the past in the rate after a flush
CODE_BYTES = 8


class ArrivalSketch:
    """Statistics of arrivals. Takes about `nbytes` per attribute, most of them for counters."""

    def __init__(self, attributes: Sequence[Attribute], nbytes: int, rng: np.random.Generator) -> None:
        self._rows = max(FEWEST, nbytes // 4 // CODE_BYTES)
        self._codes = {attribute: np.empty(0, np.int64) for attribute in attributes}
        self.counts = {
            attribute: KeyCounts(max(FEWEST, 3 * nbytes // 4 // (LINES * BYTES))) for attribute in attributes
        }
        self._rng = rng
        self._seen = 0
        self.rate = 0.0  # recent rows, in units that are the same for all inputs

    def __len__(self) -> int:
        return min(self._seen, self._rows)

    def codes(self, attribute: Attribute) -> Codes:
        """The codes of the sample."""
        return self._codes[attribute]

    def add(self, batch: Batch) -> None:
        for attribute, counts in self.counts.items():
            counts.add(batch.codes(attribute))
        rows, fitting = len(batch), max(0, min(len(batch), self._rows - self._seen))
        # Reservoir sampling: each arrived row is in the sample with the same probability (Vitter, 1985).
        late = np.arange(fitting, rows)
        places = self._rng.integers(0, self._seen + late + 1)
        chosen = np.flatnonzero(places < self._rows)
        for attribute, mine in self._codes.items():
            codes = batch.codes(attribute)
            self._codes[attribute] = mine = np.concatenate([mine, codes[:fitting]])
            mine[places[chosen]] = codes[late[chosen]]
        self._seen += rows
        self.rate += rows

    def age(self) -> None:
        self.rate *= DECAY

    def save(self, store: BlockStore, stem: str) -> dict[str, Any]:
        """Write the sample and the counters, one row per attribute."""
        columns = {
            "codes": pa.array([self._codes[attribute] for attribute in self.counts], pa.list_(pa.int64())),
            "counts": pa.array([counts.to_bytes() for counts in self.counts.values()], pa.binary()),
            "total": pa.array([counts.total for counts in self.counts.values()]),
        }
        block = store.write(pa.record_batch(columns), stem)
        return {"block": block.to_json(), "rows": self._rows, "seen": self._seen, "rate": self.rate}

    def restore(self, fields: Mapping[str, Any], store: BlockStore) -> None:
        """Restore. With less memory than before, only a part of the sample is kept."""
        saved = store.read(Block.from_json(fields["block"]))
        self._rows = min(self._rows, fields["rows"])
        self._seen, self.rate = fields["seen"], fields["rate"]
        for attribute, codes, counts, total in zip(self.counts, *saved.columns, strict=True):
            self._codes[attribute] = np.array(codes.values)[: self._rows]
            self.counts[attribute] = KeyCounts.read(counts.as_py(), total.as_py())


FEWEST = 16  # counters and sampled rows


SHARE = 0.03  # share of the memory for counters and samples
WEIGHING_BYTES = 40  # per resident row and attribute while rows are weighed: sorted codes, two sums, the worth
CHUNK = 1 << 16  # rows weighed at a time

Weights = NDArray[np.float64]
CodesOf = Callable[[Attribute], Codes]


class _Behind(NamedTuple):
    """Sorted codes with prefix sums of their weights: two look-ups give the sum over any range of codes."""

    codes: Codes
    held: Weights
    coming: Weights
    counts: KeyCounts | None  # the frequency of keys that are not among the codes,
    rate: float  # multiplied by this

    @classmethod
    def from_codes(cls, codes: Codes, held: Weights, coming: Weights, counts: KeyCounts | None, rate: float) -> _Behind:
        order = np.argsort(codes, kind="stable")
        sums = [np.concatenate([[0.0], np.cumsum(weights[order])]) for weights in (held, coming)]
        return cls(codes[order], sums[0], sums[1], counts, rate)

    def weigh_codes(self, link: Link, known: str, codes: Codes) -> tuple[Weights, Weights]:
        """The sums behind the link for each code of the input `known`: held, coming."""
        held, coming = np.empty(len(codes)), np.empty(len(codes))
        for start in range(0, len(codes), CHUNK):
            some = codes[start : start + CHUNK]
            order = np.argsort(some)  # searching for sorted codes is several times as fast
            places = start + order
            held[places], coming[places] = self._weigh_sorted(link, known, some[order])
        return held, coming

    def _weigh_sorted(self, link: Link, known: str, codes: Codes) -> tuple[Weights, Weights]:
        low, high, low_closed, high_closed = link.bounds(known, codes)
        first, last = np.zeros(len(codes), np.int64), np.full(len(codes), len(self.codes))
        if low is not None:
            first = np.searchsorted(self.codes, low, side="left" if low_closed else "right")
        if high is not None:
            last = np.searchsorted(self.codes, high, side="right" if high_closed else "left")
        last = np.maximum(first, last)
        coming = self.coming[last] - self.coming[first]
        if self.counts is not None and self.rate:
            coming = coming + self.rate * self.counts.share(codes)
        return self.held[last] - self.held[first], coming


class ExpectedResultsPolicy:
    def __init__(self, state: Multiway, seed: int) -> None:
        self._state = state
        self._tree = [hop.link for hop in state.paths.hops(state.graph.aliases[0])]
        attributes = state.paths.attributes
        nbytes = state.set_aside(SHARE) // sum(map(len, attributes.values()))
        state.count_beside({alias: WEIGHING_BYTES * len(found) for alias, found in attributes.items()})
        rng = np.random.default_rng(seed)
        self._rng = rng
        self._arrivals = {alias: ArrivalSketch(found, nbytes, rng) for alias, found in attributes.items()}
        self.names: list[str] = []

    def on_arrival(self, alias: str, batch: Batch) -> None:
        self._arrivals[alias].add(batch)

    def on_results(self, rows: Partial, tables: Mapping[str, ProbeTable]) -> None:
        """Unused: expected results predict better than past ones."""

    def on_kept(self, alias: str, batch: Batch) -> None: ...

    def forgotten(self, alias: str) -> None: ...

    def save(self, store: BlockStore) -> dict[str, Any]:
        saved = {alias: arrivals.save(store, f"{alias}-arrivals") for alias, arrivals in self._arrivals.items()}
        self.names = [fields["block"]["name"] for fields in saved.values()]
        return {"arrivals": saved, "rng": self._rng.bit_generator.state}

    def restore(self, fields: Mapping[str, Any], store: BlockStore) -> None:
        self._rng.bit_generator.state = fields["rng"]
        for alias, arrivals in self._arrivals.items():
            arrivals.restore(fields["arrivals"][alias], store)

    def flush(self) -> bool:
        """Evict a block; False if there are no rows."""
        state = self._state
        best: tuple[float, str, Rows] | None = None
        for alias, worth in self.of_all().items():
            if not len(worth):
                continue
            size = min(state.block_size(alias), len(worth))
            rows = np.argpartition(worth, size - 1)[:size]
            mean = float(worth[rows].mean()) / state.row_size(alias)
            if best is None or mean < best[0]:
                best = mean, alias, rows
        if best is None:
            return False
        _, alias, rows = best
        mine = state.residents[alias]
        state.evict({alias: rows[np.argsort(mine.codes(mine.attributes[0])[rows], kind="stable")]})
        for arrivals in self._arrivals.values():
            arrivals.age()
        return True

    def of_all(self) -> dict[str, Weights]:
        """The worth of every resident row."""
        behind: dict[tuple[str, Link], _Behind] = {}
        return {
            alias: self._combine_links(alias, None, residents.codes, behind)[1]
            for alias, residents in self._state.residents.items()
        }

    def _combine_links(
        self, alias: str, towards: Link | None, codes: CodesOf, known: dict[tuple[str, Link], _Behind]
    ) -> tuple[Weights, Weights]:
        """For rows of an input: held and coming over all its links except one."""
        held: Weights = np.ones(1)
        coming: Weights = np.zeros(1)
        for link in self._tree:
            if alias in link.ends and link is not towards:
                more = self._sums_behind(alias, link, known).weigh_codes(link, alias, codes(link.attribute(alias)))
                held, coming = held * more[0], held * more[1] + coming * more[0]
        return held, coming

    def _sums_behind(self, alias: str, link: Link, known: dict[tuple[str, Link], _Behind]) -> _Behind:
        """The sums behind a link, seen from one input."""
        (other,) = link.ends - {alias}
        if (other, link) not in known:
            residents, arrivals = self._state.residents[other], self._arrivals[other]
            attribute = link.attribute(other)
            held, coming = (
                np.broadcast_to(weights, len(residents))
                for weights in self._combine_links(other, link, residents.codes, known)
            )
            rate = 0.0 if self._state.ended[other] else arrivals.rate
            meets = np.broadcast_to(self._combine_links(other, link, arrivals.codes, known)[0], len(arrivals))
            codes = residents.codes(attribute)
            if link.is_equality:
                mean = float(meets.mean()) if len(meets) else 0.0
                found = _Behind.from_codes(codes, held, coming, arrivals.counts[attribute], rate * mean)
            else:
                codes = np.concatenate([codes, arrivals.codes(attribute)])
                held = np.concatenate([held, np.zeros(len(meets))])
                coming = np.concatenate([coming, rate * meets / max(1, len(meets))])
                found = _Behind.from_codes(codes, held, coming, None, 0.0)
            known[other, link] = found
        return known[other, link]
