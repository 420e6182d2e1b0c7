"""MINER: the adaptive join of three or more inputs, along chains, stars and trees, by equality and by range.

    arriving   batch --> probe one input after the other, most selective first --> results
                     \\-> keep, in an index per join attribute; when full, evict a block of the least useful rows
    reactive   blocks x blocks x … as an odometer over all inputs, re-entrant (spilled_blocks.py)
    cleanup    flush all residents, then blocks x blocks x … to the end

Guarantee: every matching combination exactly once, within the budget. Combinations whose rows were all in memory when
the last of them arrived are recognised by the residence rule, max(arrived) < min(left), and skipped by the block join.

Which rows are the least useful (`policy`):

Bornea, Vassalos, Kotidis, Deligiannakis, Adaptive Join Operators for Result Rate Optimization on Streaming Inputs,
TKDE 2010, section 4.

Deviations: batches instead of tuples. The order of probing only follows links from inputs already joined to inputs that
are not; as printed it could jump. Equalities are used transitively, so one attribute shared by all inputs is not a
special case. Edges beyond a tree are checked as soon as both ends are joined. A band or an inequality is a range in the
index of the other attribute; strings, and several equalities together, are ordered by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from dovetail.condition.graph import Graph
from dovetail.core.rows import Matches, Rows
from dovetail.errors import InputError
from dovetail.matching.expansion import Partial, Paths, ProbeTable, Selectivities
from dovetail.matching.links import Attribute
from dovetail.matching.residents import Batch, Residents
from dovetail.operators.blockwise.regions import Policy, Regions
from dovetail.operators.multiway.expected_results import ExpectedResultsPolicy
from dovetail.operators.multiway.multiway import Multiway, MultiwayOperator
from dovetail.operators.protocol import TWO_AND_MORE, Approach, Manifest, OperatorSpec, Workspace
from dovetail.storage.blocks import BlockStore


class BenefitPolicy:
    def __init__(self, state: Multiway, seed: int) -> None:
        self._state = state
        self._policy = Policy(seed=seed)
        self.regions = {a: Regions(self._policy) for found in state.residents.values() for a in found.attributes}

    def on_arrival(self, alias: str, batch: Batch) -> None:
        """Unused: arriving rows carry no information yet."""

    def on_results(self, rows: Partial, tables: Mapping[str, ProbeTable]) -> None:
        for alias, taken in rows.items():
            for attribute in self._state.residents[alias].attributes:
                self.regions[attribute].credit(tables[alias].codes(attribute, taken))

    def on_kept(self, alias: str, batch: Batch) -> None:
        for attribute in self._state.residents[alias].attributes:
            self.regions[attribute].add(batch.codes(attribute))

    def flush(self) -> bool:
        """Evict a block; False if there are no rows."""
        residents = self._state.residents
        alias = max(residents, key=lambda a: len(residents[a]))
        mine = residents[alias]
        if not len(mine):
            return False
        block = self._state.block_size(alias)
        chosen, victim = self._choose(mine, min(block, len(mine)))
        self._state.evict({alias: chosen[np.argsort(mine.codes(victim)[chosen], kind="stable")]})
        edges = {0, self._policy.regions - 1}
        for attribute in mine.attributes:
            self.regions[attribute].move_bounds(mine.codes(attribute), block, edges)
        return True

    def save(self, store: BlockStore) -> dict[str, Any]:
        return {"regions": [regions.to_json() for regions in self.regions.values()]}

    def restore(self, fields: Mapping[str, Any], store: BlockStore) -> None:
        saved = (Regions.from_json(self._policy, regions) for regions in fields["regions"])
        self.regions = dict(zip(self.regions, saved, strict=True))

    @property
    def names(self) -> list[str]:
        return []

    def forgotten(self, alias: str) -> None:
        """Called when all rows of an input have been removed."""
        for attribute in self._state.residents[alias].attributes:
            self.regions[attribute] = Regions(self._policy)

    def _choose(self, mine: Residents, need: int) -> tuple[Rows, Attribute]:
        """The rows to evict, and the attribute that orders them."""
        order = sorted(
            (benefit, rank, place, region)
            for place, attribute in enumerate(mine.attributes)
            for benefit, rank, region in self.regions[attribute].benefits()
        )
        staying = np.ones(len(mine), np.bool_)
        missing = need
        for _, _, place, region in order:
            if not missing:
                break
            attribute = mine.attributes[place]
            regions, codes = self.regions[attribute], mine.codes(attribute)
            inside = np.flatnonzero(staying & (regions.region_of(codes) == region))
            if len(inside):
                rows, spared = regions.take(region, codes, mine.marks.all(), mine.arrived, inside, missing)
                mine.marks.lower(spared)
                staying[rows] = False
                missing -= len(rows)
        return np.flatnonzero(~staying), mine.attributes[order[0][2]]


class FlushingPolicy(Protocol):
    """Chooses the rows to evict, from the results observed so far."""

    def on_arrival(self, alias: str, batch: Batch) -> None: ...
    def on_results(self, rows: Partial, tables: Mapping[str, ProbeTable]) -> None: ...
    def on_kept(self, alias: str, batch: Batch) -> None: ...
    def forgotten(self, alias: str) -> None: ...
    def flush(self) -> bool: ...
    def save(self, store: BlockStore) -> dict[str, Any]:
        """The learned state, ready for JSON; its bulk is in blocks."""

    def restore(self, fields: Mapping[str, Any], store: BlockStore) -> None:
        """Restore the learned state; the residents follow through `on_kept`."""

    @property
    def names(self) -> list[str]:
        """The names of the blocks that were saved last."""


POLICIES: dict[str, Callable[[Multiway, int], FlushingPolicy]] = {
    "benefit": BenefitPolicy,
    "worth": ExpectedResultsPolicy,
}
PER = ("resident", "candidate")


class Miner(MultiwayOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="miner", inputs=TWO_AND_MORE, parameters={"policy": str, "selectivity": str}
    )

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        policy = workspace.parameters.get("policy", "worth")
        per = workspace.parameters.get("selectivity", "resident")
        if policy not in POLICIES or per not in PER:
            raise InputError(
                f"miner has the policies {', '.join(POLICIES)} and the selectivities per {', '.join(PER)}; "
                f"got {policy!r} and {per!r}."
            )
        self._policy = POLICIES[policy](self._state, workspace.seed)
        self._store = workspace.blocks
        self._has_learned = False
        self._selectivities = Selectivities(self._state.paths.links, per)

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        unreached = Paths(graph).unreached
        if not unreached:
            return None
        return (
            f"every input needs an equality, a band or an inequality of numbers or times with another; {unreached[0]} "
            f"has none that connects it to {graph.aliases[0]}"
        )

    @staticmethod
    def approach(graph: Graph) -> Approach:
        return Approach("probes one input after the other; spills the rows with the fewest results", graph.predicates)

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        alias = self._state.graph.aliases[number]
        state = self._state
        arriving = state.take_in(alias, batch)
        self._policy.on_arrival(alias, arriving)
        sizes = self._sizes()
        hops = state.paths.hops(alias, lambda link: self._selectivities.selectivity_of(link, sizes))
        used = np.zeros(len(arriving), np.bool_)
        tables = state.tables(alias, arriving)
        for rows in state.probe(alias, arriving, hops, self._selectivities.tally):
            self._policy.on_results(rows, tables)
            used[rows[alias]] = True
            for other, residents in state.residents.items():
                if other != alias:
                    residents.marks.add(rows[other])
            yield state.results(alias, arriving, rows)
        if not state.is_wanted(alias):
            return
        state.free_memory(alias, arriving)
        state.keep(alias, arriving, used)
        self._policy.on_kept(alias, arriving)

    def end(self, number: int) -> None:
        before = self._sizes()
        super().end(number)
        for other, rows in self._sizes().items():
            if before[other] and not rows:
                self._policy.forgotten(other)

    def snapshot(self) -> Manifest:
        manifest = super().snapshot()
        state = {**manifest.state, "policy": self._policy.save(self._store)}
        return Manifest(manifest.version, state, (*manifest.segments, *self._policy.names))

    def restore(self, manifest: Manifest) -> None:
        learned = manifest.state.get("policy")
        if learned is not None:
            self._policy.restore(learned, self._store)
        self._has_learned = learned is not None
        super().restore(manifest)

    def _note_restored(self, alias: str, batch: Batch) -> None:
        if not self._has_learned:  # state of 0.1.0 does not record earlier arrivals
            self._policy.on_arrival(alias, batch)
        self._policy.on_kept(alias, batch)

    def _flush(self) -> bool:
        sizes = self._sizes()
        if not self._policy.flush():
            return False
        self._selectivities.reset_counts(sizes)
        return True

    def _flush_all(self) -> None:
        """Evict all rows, ordered by an attribute, so that each block covers a small range of it."""
        for alias, residents in self._state.residents.items():
            if len(residents):
                order = np.argsort(residents.codes(residents.attributes[0]), kind="stable")
                self._state.evict({alias: order})
                self._policy.forgotten(alias)
