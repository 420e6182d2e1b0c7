"""Progressive merge join of three or more inputs on one common attribute: one sweep over all of them.

    arriving   batch --> probe the other inputs in memory --> results
                     \\-> keep; when full, spill all inputs as a group of sorted runs
    reactive   groups are merged, the smallest first: rows of different groups are joined
    cleanup    the same, until a single group is left

        (A1 B1 C1) (A2 B2 C2) (A3 B3 C3)       found in memory: results within one group
               \\        |        /
               (not written: the last)         all others: A1 B1 C2, A1 B2 C1, …

Guarantee: every matching combination exactly once, within the budget: at the lowest node of the merge tree that
contains all its rows. A merge skips exactly the combinations whose rows are all from one group.

Dittrich, Seeger, Taylor, Widmayer, Progressive merge join, VLDB 2002, section 5, which names joins of more than two
inputs on common attributes as an extension.

Deviations: the paper gives no algorithm. Attributes are joined by equalities and bands; a row stays in its area as long
as any chain of them reaches (`SweepReach`). Rows are joined as they arrive, by ordered indexes, instead of when a run
is built. New rows of a step are joined with areas input by input: rows of an input with the areas of the inputs before
it, and with areas and new rows of those after it, so that no combination is found twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import no_matches
from dovetail.condition.graph import Graph
from dovetail.core.codes import add_saturating, float_codes
from dovetail.core.rows import Matches
from dovetail.kernels.band import SINGLE_STEP, code_floats
from dovetail.kernels.sorting import sort_codes
from dovetail.matching.expansion import Hop, Paths, ProbeTable, checked, expand, results
from dovetail.matching.links import Attribute, Codes, Link, encode_keys, links_of
from dovetail.matching.residents import Batch, Residents, resident_schema
from dovetail.matching.sweep_order import Items
from dovetail.operators.pmj.merge import Merge
from dovetail.operators.pmj.runs import Pages, RunGroup, RunWriter, SweepRun, arriving_memory
from dovetail.operators.pmj.scheduler import MergeScheduler
from dovetail.operators.protocol import TWO_AND_MORE, Approach, JoinOperator, Manifest, OperatorSpec, Usage, Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.budget import BUFFER

Number = int | float


class SweepReach:
    def __init__(self, attributes: Mapping[str, Attribute], links: Sequence[Link]) -> None:
        self.attributes = attributes
        self._links = links
        bounds = [abs(bound) for link in links for bound in link.band or ()]
        self._exact = all(isinstance(bound, int) for bound in bounds)
        self._widest = float(sum(bounds)) if not self._exact else 0.0
        self._reaches = _reaches(attributes, links)

    @classmethod
    def along(cls, links: Sequence[Link], aliases: Sequence[str]) -> SweepReach | None:
        """The first attribute that equalities and bands connect across all inputs."""
        usable = [link for link in links if link.is_equality or link.band is not None]
        for start in (link.attribute(aliases[0]) for link in usable if aliases[0] in link.ends):
            found = {aliases[0]: start}
            grows = True
            while grows:
                grows = False
                for link in usable:
                    for mine, other in ((link.left, link.right), (link.right, link.left)):
                        if found.get(mine.alias) == mine and other.alias not in found:
                            found[other.alias] = other
                            grows = True
            if len(found) == len(aliases):
                within = [k for k in usable if found[k.left.alias] == k.left and found[k.right.alias] == k.right]
                return cls(found, within)
        return None

    def ends(self, alias: str, codes: Codes) -> Codes:
        """Where the intervals of an input's rows end."""
        reach = self._reaches[alias]
        if reach <= 0 and self._exact:
            return codes
        if self._exact:
            return add_saturating(codes, int(reach))
        values = code_floats(codes)
        with np.errstate(invalid="ignore", over="ignore"):
            slack = len(self.attributes) * SINGLE_STEP * (np.abs(values) + self._widest)
            ends = float_codes(values + max(0.0, float(reach)) + slack)
        return np.maximum(codes, ends)


def _reaches(attributes: Mapping[str, Attribute], links: Sequence[Link]) -> dict[str, Number]:
    """For each input, the most that a matching value of another input can exceed its value."""
    most: dict[tuple[str, str], Number] = {}
    for link in links:
        low, high = link.band or (0, 0)  # of left - right
        for pair, bound in (((link.right.alias, link.left.alias), high), ((link.left.alias, link.right.alias), -low)):
            most[pair] = min(bound, most.get(pair, bound))
    for via, start, end in product(attributes, repeat=3):
        if (start, via) in most and (via, end) in most:
            around = most[start, via] + most[via, end]
            most[start, end] = min(around, most.get((start, end), around))
    return {a: max(bound for (start, end), bound in most.items() if start == a != end) for a in attributes}


SORT_BYTES = 20  # per row while its run is sorted: its interval and its position


class MultiPmj(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="pmj", inputs=TWO_AND_MORE, parameters={"fan_in": int}, takes_turns=True
    )

    def __init__(self, workspace: Workspace) -> None:
        self._graph = workspace.graph
        self._aliases = workspace.graph.aliases
        self._budget = workspace.budget
        self._store = workspace.blocks
        self._block_rows = workspace.block_rows
        self._counters = workspace.counters
        self._paths = Paths(workspace.graph)
        reach = SweepReach.along(self._paths.links, self._aliases)
        assert reach is not None
        self._reach = reach
        schemas = {a: resident_schema(workspace.graph.schemas[a], self._paths.attributes[a]) for a in self._aliases}
        self._pages = Pages(workspace.blocks, workspace.budget, schemas)
        self._residents = self._empty()
        meets = _GroupCallbacks(workspace.graph, self._paths, self._tally)
        self._merging: MergeScheduler[Matches] = MergeScheduler(workspace, meets, self._pages)
        self._version = 0

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        if SweepReach.along(links_of(graph), graph.aliases) is not None:
            return None
        return "all inputs must be joined along one attribute, by equalities and bands"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        return Approach(
            "progressive merge join of all inputs along one attribute; spills what does not fit", graph.predicates
        )

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        alias = self._graph.aliases[number]
        attributes = self._paths.attributes[alias]
        rows = Batch.arriving(attributes, encode_keys(self._graph, alias, attributes, batch), 0)
        if self._merging.held and not self._fits(self._merging.held, rows):
            yield from self._merging.rest_of_step()
            self._merging.sleep()
        if not self._fits(0, rows):
            self._close_run()
        self._counters.probes += len(rows)
        tables: dict[str, ProbeTable] = {**self._residents, alias: rows}
        if all(len(table) for table in tables.values()):
            for found in expand(self._paths.hops(alias), tables, {alias: np.arange(len(rows))}, self._tally):
                good = checked(self._graph, tables, found)
                chosen = found if good is None else {a: taken[good] for a, taken in found.items()}
                yield results(self._graph, tables, chosen)
        self._residents[alias].insert(rows, np.zeros(len(rows), np.bool_))
        self._budget.release(BUFFER)
        self._hold()

    def react(self) -> Iterator[Matches]:
        while self._can_merge():
            yield from self._merging.react()

    def clean_up(self) -> Iterator[Matches]:
        if not self._merging.is_done:
            self._close_run()
            yield from self._merging.finish()

    def snapshot(self) -> Manifest:
        self._version += 1
        stem = f"{self._version:08d}"
        resident: dict[str, list[Block]] = {alias: [] for alias in self._aliases}
        for alias, rows in self._residents.items():
            for start in range(0, len(rows), self._block_rows):
                batch = rows.take(np.arange(start, min(start + self._block_rows, len(rows))))
                resident[alias].append(self._store.write(batch, f"{stem}-{alias}"))
        state = {
            "merging": self._merging.to_json(),
            "resident": {alias: [block.to_json() for block in blocks] for alias, blocks in resident.items()},
        }
        blocks = [*self._merging.blocks, *(block for blocks in resident.values() for block in blocks)]
        return Manifest(self._version, state, tuple(block.name for block in blocks))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._merging.restore(manifest.state["merging"])
        for alias, blocks in manifest.state["resident"].items():
            for fields in blocks:
                rows = Batch(self._paths.attributes[alias], self._store.read(Block.from_json(fields)))
                self._residents[alias].insert(rows, np.zeros(len(rows), np.bool_))
        self._hold()

    @property
    def usage(self) -> Usage:
        return Usage(*self._size(), *self._merging.spilled)

    # Runs.

    def _can_merge(self) -> bool:
        """Whether there are runs to merge. Rows in memory are written if in the way, or if only they remain."""
        share = self._merging.share
        if self._merging.groups if share is None else not self._fits(share):
            self._close_run()
        return self._merging.share is not None

    def _close_run(self) -> None:
        """Write the resident rows, which have been joined, as a group of runs."""
        arrived = tuple(len(rows) for rows in self._residents.values())
        if any(arrived):
            page = self._merging.memory.page
            runs = tuple(self._write_run(number, page) for number in range(len(self._aliases)))
            self._merging.groups.append(RunGroup(runs, arrived))
            self._residents = self._empty()
            self._hold()

    def _write_run(self, number: int, page: int) -> SweepRun:
        alias = self._aliases[number]
        rows = self._residents[alias]
        starts = rows.codes(self._reach.attributes[alias])
        ends = self._reach.ends(alias, starts)
        writer = RunWriter(self._pages, number, page)
        order = sort_codes(starts).order
        width = self._budget.measure(1, -(-rows.nbytes // max(1, len(rows))) + 2 * starts.itemsize)
        step = max(1, page // width)
        for start in range(0, len(order), step):
            chosen = order[start : start + step]
            writer.add_page(Items(rows.take(chosen), starts[chosen], ends[chosen]))
        return writer.finish()

    def _empty(self) -> dict[str, Residents]:
        attributes, ordered = self._paths.attributes, self._paths.ordered
        return {a: Residents(self._graph.schemas[a], attributes[a], ordered) for a in self._aliases}

    def _tally(self, hop: Hop, probes: int, candidates: int, found: int) -> None:
        self._counters.pairs_tested += found

    # Memory.

    def _fits(self, held: int, more: Batch | None = None) -> bool:
        """Whether the current run can grow, in addition to other memory and the arriving rows."""
        limit = self._budget.limit
        if limit is None:
            return True
        rows, nbytes = self._size()
        if more is not None:
            rows, nbytes = rows + len(more), nbytes + more.nbytes + SORT_BYTES * len(more)
        return self._budget.measure(rows, nbytes) + held <= limit - arriving_memory(self._budget, self._block_rows)

    def _size(self) -> tuple[int, int]:
        residents = self._residents.values()
        most = max(len(rows) for rows in residents)
        return sum(len(rows) for rows in residents), sum(rows.nbytes for rows in residents) + SORT_BYTES * most

    def _hold(self) -> None:
        self._budget.hold("residents", *self._size())


class _GroupCallbacks:
    """The results of merges of several inputs."""

    repeats = False

    def __init__(self, graph: Graph, paths: Paths, tally: Callable[[Hop, int, int, int], None]) -> None:
        self._graph = graph
        self._paths = paths
        self._tally = tally
        self.nothing = no_matches(tuple(graph.schemas.values()))

    def select_needed(self, number: int, items: Items) -> Items:
        return items

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[Matches]:
        return iter(())

    def on_merged(self, merge: Merge, found: int) -> None:
        pass

    def step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[Matches]:
        for area in merge.areas:
            area.gather()
        for number, items in enumerate(new):
            if items.size:
                for parts in self._combinations(merge, new, number, ()):
                    yield from self._join_parts(number, parts)

    def _combinations(
        self, merge: Merge, new: tuple[Items, ...], number: int, chosen: tuple[Items, ...]
    ) -> Iterator[tuple[Items, ...]]:
        """New rows of one input with parts of all others: their areas, and for later inputs also their new rows."""
        place = len(chosen)
        if place == len(new):
            merge.hold(*(part for part, items in zip(chosen, new, strict=True) if part is not items))
            yield chosen
            return
        parts: Iterator[Items] = iter([new[place]]) if place >= number else iter(())
        if place != number:
            parts = chain(parts, merge.areas[place].query(int(new[number].starts.min())))
        for part in parts:
            if part.size:
                yield from self._combinations(merge, new, number, (*chosen, part))

    def _join_parts(self, number: int, parts: tuple[Items, ...]) -> Iterator[Matches]:
        """Results whose rows are not all from one group."""
        aliases = self._graph.aliases
        tables = {a: Batch(self._paths.attributes[a], part.batch) for a, part in zip(aliases, parts, strict=True)}
        start = aliases[number]
        for rows in expand(self._paths.hops(start), tables, {start: np.arange(len(tables[start]))}, self._tally):
            sources = [part.sources[rows[alias]] for alias, part in zip(aliases, parts, strict=True)]
            good = np.any([source != sources[0] for source in sources[1:]], axis=0)
            satisfied = checked(self._graph, tables, rows)
            if satisfied is not None:
                good &= satisfied
            if good.any():
                yield results(self._graph, tables, {alias: taken[good] for alias, taken in rows.items()})
