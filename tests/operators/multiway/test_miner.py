"""Internals of MINER: statistics, indexes, probe order, eviction."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded

from dovetail.condition.graph import parse_graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Rows
from dovetail.errors import InputError
from dovetail.matching.expansion import Paths
from dovetail.matching.links import Attribute, Bounds
from dovetail.operators.multiway.expected_results import ExpectedResultsPolicy
from dovetail.operators.multiway.miner import BenefitPolicy, Miner
from dovetail.operators.protocol import Manifest, Usage, Workspace
from dovetail.operators.registry import operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import check_run, random_schedule, random_table
from dovetail.testing.simulation import simulate

CHAIN = "a.k = b.k AND b.x = c.x AND c.s = d.s"


class ReportedPairs:
    """Counts results since the last flush of each input, independently of the operator's counters."""

    def __init__(self, miner: Miner) -> None:
        self.miner = miner
        self.policy: Any = miner._policy
        self.found: dict[Attribute, list[int]] = defaultdict(list)
        self.matches: Counter[Any] = Counter()
        self.flushes = 0
        self._wrap()

    def _wrap(self) -> None:
        policy, state, selectivities = self.policy, self.miner._state, self.miner._selectivities
        found, flush, tally = policy.on_results, policy.flush, selectivities.tally
        evict = state.evict

        def seen_found(rows: Any, tables: Any) -> None:
            for alias, taken in rows.items():
                for attribute in state.residents[alias].attributes:
                    self.found[attribute] += tables[alias].codes(attribute)[taken].tolist()
            found(rows, tables)

        def seen_evict(chosen: dict[str, Rows], box: int = 0) -> None:
            for alias in chosen:
                for attribute in state.residents[alias].attributes:
                    self.found[attribute] = []
            evict(chosen, box)

        def seen_flush() -> bool:
            self.flushes += 1
            self.matches.clear()
            return bool(flush())

        def seen_tally(hop: Any, probes: int, candidates: int, matches: int) -> None:
            self.matches[hop.link] += matches
            tally(hop, probes, candidates, matches)

        policy.on_results, policy.flush, state.evict = seen_found, seen_flush, seen_evict
        selectivities.tally = seen_tally

    def check(self) -> None:
        state = self.miner._state
        for residents in state.residents.values():
            for attribute in residents.attributes:
                codes = residents.codes(attribute)
                # Each row is in all indexes of its input, exactly once, and nothing else is.
                keys = np.unique(codes)
                found = [(keys[:0], keys[:0]), *residents.find(attribute, Bounds(keys, keys), 10**6)]
                probing, rows = (np.concatenate(column) for column in zip(*found, strict=True))
                assert sorted(rows.tolist()) == list(range(len(residents)))
                assert (codes[rows] == keys[probing]).all()
                regions = self.policy.regions[attribute]
                assert regions.tups.tolist() == np.bincount(regions.region_of(codes), minlength=3).tolist()
                if regions.bounds is not None:
                    assert regions.bounds[0] <= regions.bounds[1]
                    since = np.array(self.found[attribute], np.int64)
                    assert regions.joins.tolist() == np.bincount(regions.region_of(since), minlength=3).tolist()
        for link in state.paths.links:
            assert self.miner._selectivities.matches[link] == self.matches[link]


@pytest.mark.parametrize("seed", range(repeat(8)))
def test_statistics_are_what_they_are_from_scratch(seed: int) -> None:
    """After every event: rows and results per region, matches per link, rows per index."""
    rng = seeded(seed)
    tables = {alias: random_table(rng, rng.choice([8, 14, 20])) for alias in "abcd"}
    rows = {alias: table.num_rows for alias, table in tables.items()}
    schedule = [event for event in random_schedule(rng, rows) if event[0] != "restart"]
    records: dict[int, ReportedPairs] = {}

    def watch(miner: Any) -> None:
        if id(miner) in records:
            records[id(miner)].check()

    original = Miner.__init__

    def watched(self: Miner, workspace: Workspace) -> None:
        original(self, workspace)
        records[id(self)] = ReportedPairs(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Miner, "__init__", watched)
        setting = {"memory_rows": 12, "block_rows": 2, "policy": "benefit"}
        run = check_run("miner", tables, on=CHAIN, schedule=schedule, watch=watch, **setting)
    assert run.counters.pages_written > 0
    assert next(iter(records.values())).flushes > 0


def test_probing_goes_on_from_what_is_joined() -> None:
    """The paper's example: with s23 <= s12 <= s34, a row of R2 probes R3, then R1, then R4; R1 must start with R2."""
    schemas = {alias: pa.schema([(name, pa.int64()) for name in "uvw"]) for alias in ("r1", "r2", "r3", "r4")}
    paths = Paths(parse_graph("r1.u = r2.u AND r2.v = r3.v AND r3.w = r4.w", schemas))
    selectivity = dict(zip(paths.links, (0.2, 0.1, 0.3), strict=True))
    orders = {alias: [hop.new for hop in paths.hops(alias, selectivity.__getitem__)] for alias in schemas}
    assert orders["r2"] == ["r3", "r1", "r4"]
    assert orders["r1"] == ["r2", "r3", "r4"]
    assert orders["r4"] == ["r3", "r2", "r1"]


def test_equalities_are_transitive() -> None:
    schemas = {alias: pa.schema([("k", pa.int64()), ("s", pa.string())]) for alias in "abcd"}
    star = Paths(parse_graph("a.k = b.k AND b.k = c.k AND c.k = d.k", schemas))
    assert len(star.links) == 6
    assert all(len(attributes) == 1 for attributes in star.attributes.values())
    assert len(Paths(parse_graph("a.k = b.k AND b.s = c.s AND c.k = d.k", schemas)).links) == 3


def workspace(memory_rows: int, on: str, **parameters: Any) -> Workspace:
    schemas = {alias: pa.schema([("k", pa.int64()), ("x", pa.int64())]) for alias in "abc"}
    counters = Counters()
    budget = Budget(memory_rows, "rows", counters)
    return Workspace(parse_graph(on, schemas), budget, BlockStore(), 2, counters, parameters=parameters)


def rows(keys: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64())] * 2, ["k", "x"])


def rows_of(usage: Usage) -> Usage:
    """Usage without bytes, since the spare capacity of indexes varies."""
    return replace(usage, resident_bytes=0)


def drained(work: Iterator[Any]) -> None:
    for _ in work:
        pass


def test_the_clock_spares_rows_that_were_used() -> None:
    space = workspace(100, "a.k = b.k AND b.x = c.x", policy="benefit")
    miner = Miner(space)
    drained(miner.arrive(1, rows([1, 2, 3, 4])))
    drained(miner.arrive(2, rows([2, 4])))
    drained(miner.arrive(0, rows([2, 4])))
    policy = miner._policy
    assert isinstance(policy, BenefitPolicy)
    policy.flush()
    residents = miner._state.residents["b"]
    assert sorted(residents.codes(residents.attributes[0]).tolist()) == [2, 4]
    assert not residents.marks.all().all()  # the clock hand has cleared some marks
    space.blocks.close()


def test_worth_is_the_number_of_results_to_expect() -> None:
    """Only rows of b that both a and c are likely to complete have worth; a resident partner increases it."""
    space = workspace(200, "a.k = b.k AND b.x = c.x")
    miner = Miner(space)
    drained(miner.arrive(1, rows([1, 2, 3])))
    drained(miner.arrive(2, rows([1, 1, 1, 2])))
    drained(miner.arrive(0, rows([1, 2])))
    policy = miner._policy
    assert isinstance(policy, ExpectedResultsPolicy)
    worth = policy.of_all()
    assert worth["b"][0] > worth["b"][1] > worth["b"][2]
    assert worth["a"][0] > worth["a"][1]
    miner.end(2)  # no more rows of c arrive, so the row of b without a partner in c is worth nothing
    worth = policy.of_all()
    assert worth["b"][0] > worth["b"][1] > worth["b"][2] == 0
    assert worth["c"].min() > 0
    for number in (0, 1):
        miner.end(number)
    assert not len(miner._state.residents["c"])  # nothing was on disk, so all results have been found
    space.blocks.close()


def test_unknown_policies_are_refused() -> None:
    tables = {alias: pa.table({"k": [1]}) for alias in "abc"}
    with pytest.raises(InputError, match="policies benefit, worth"):
        simulate("miner", tables, on="a.k = b.k AND b.k = c.k", policy="luck")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "restarted"),
    [
        ("miner", True),
        ("mjoin", False),
        pytest.param("miner", False, marks=pytest.mark.slow),
        pytest.param("mjoin", True, marks=pytest.mark.slow),
    ],
)
def test_a_snapshot_changes_nothing_and_writes_what_is_new(name: str, restarted: bool, tmp_path: Path) -> None:
    """Rows in memory are there after a restart, and arriving rows find them."""
    rng = np.random.default_rng(0)
    wide = pa.array(["x" * 300] * 20)
    arrivals = [(number, rows(rng.integers(0, 60, 20).tolist())) for _ in range(40) for number in range(3)]
    arrivals = [(number, batch.append_column("pad", wide)) for number, batch in arrivals]
    counters = Counters()

    def operator() -> Any:
        graph = parse_graph("a.k = b.k AND b.k = c.k", dict.fromkeys("abc", arrivals[0][1].schema))
        budget = Budget(1200, "rows", counters)
        return operator_class(name, 3)(Workspace(graph, budget, BlockStore(tmp_path), 25, counters, seed=1))

    still, run = operator(), operator()
    named: set[str] = set()
    new_bytes = []
    for number, batch in arrivals:
        wanted = sum(found.size for found in still.arrive(number, batch))
        online = sum(found.size for found in run.arrive(number, batch))
        manifest = run.snapshot()
        if not (restarted and still.usage.spilled_rows):  # after a restart the policy may evict other rows
            assert online == wanted
            assert rows_of(run.usage) == rows_of(still.usage)
        kept = {segment for segment in manifest.segments if "kept" in segment}
        new_bytes.append(sum((tmp_path / segment).stat().st_size for segment in kept - named))
        named = kept
        if restarted:
            before = run.usage
            run = operator()
            run.restore(Manifest(manifest.version, json.loads(json.dumps(manifest.state)), manifest.segments))
            assert rows_of(run.usage) == rows_of(before)
    assert run.usage.resident_rows > 900
    assert np.median(new_bytes) < 0.3 * max(new_bytes)  # the largest snapshot writes everything
