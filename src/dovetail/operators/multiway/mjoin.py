"""MJoin: the symmetric hash join of three or more inputs on one attribute that they all share.

    arriving   batch --> probe the other inputs, most selective first --> results
                     \\-> keep, in a bucket; when full, spill the largest bucket, from all inputs at once
    reactive   per bucket: blocks x blocks x … as an odometer over all inputs, re-entrant (spilled_blocks.py)
    cleanup    flush all residents, then the same to the end

Guarantee: every matching combination exactly once, within the budget. Rows of one bucket are spilled together
(coordinated flushing), so spilled rows of a bucket are only joined with spilled rows of the same bucket.

Viglas, Naughton, Burger, Maximizing the output rate of multi-way join queries over streaming information sources,
VLDB 2003; as described in Adaptive Join Operators (TKDE 2010), section 2, with XJoin's choice of the largest bucket.

Deviations: batches instead of tuples; they probe before they are kept. Buckets only determine which rows are spilled
together; rows are found in a hash table over codes. Results found in memory are recognised by the residence rule. The
paper's extension to several attributes, which evicts rows at random, is left out: use `miner` for those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition.graph import Graph
from dovetail.core.rows import Matches
from dovetail.kernels.hashing import hash_codes
from dovetail.matching.expansion import Selectivities
from dovetail.matching.links import links_of, shared_attribute
from dovetail.operators.multiway.multiway import MultiwayOperator
from dovetail.operators.protocol import TWO_AND_MORE, Approach, OperatorSpec, Workspace

BUCKETS = 20


class Mjoin(MultiwayOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(name="mjoin", inputs=TWO_AND_MORE, parameters={"buckets": int})

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        shared = shared_attribute(self._state.paths.links, workspace.graph.aliases)
        assert shared is not None
        self._attributes = shared
        self._buckets = int(workspace.parameters.get("buckets", BUCKETS))
        self._selectivities = Selectivities(self._state.paths.links)

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        if shared_attribute(links_of(graph), graph.aliases) is not None:
            return None
        return "all inputs must be joined by equality of one attribute"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        return Approach("hash tables of all inputs on one attribute; spills partitions of it", graph.predicates)

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        alias = self._state.graph.aliases[number]
        state = self._state
        arriving = state.take_in(alias, batch)
        sizes = self._sizes()
        hops = state.paths.hops(alias, lambda link: self._selectivities.selectivity_of(link, sizes))
        for rows in state.probe(alias, arriving, hops, self._selectivities.tally):
            yield state.results(alias, arriving, rows)
        if not state.is_wanted(alias):
            return
        state.free_memory(alias, arriving)
        state.keep(alias, arriving, np.zeros(len(arriving), np.bool_))

    def _flush(self) -> bool:
        """Spill the bucket with the most rows from every input; False if there are no rows."""
        buckets = {alias: self._bucket_of(alias) for alias in self._state.residents}
        sizes = sum(np.bincount(found, minlength=self._buckets) for found in buckets.values())
        largest = int(np.argmax(sizes))
        chosen = {alias: np.flatnonzero(found == largest) for alias, found in buckets.items()}
        chosen = {alias: rows for alias, rows in chosen.items() if len(rows)}
        if not chosen:
            return False
        self._state.evict(chosen, largest)
        return True

    def _bucket_of(self, alias: str) -> NDArray[np.int64]:
        codes = self._state.residents[alias].codes(self._attributes[alias])
        return hash_codes(codes) % self._buckets
