"""Counts of keys in little memory, and sketches of the arrivals of an input."""

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition.graph import parse_graph
from dovetail.matching.expansion import FEWEST_PROBES, Hop, Paths, Selectivities
from dovetail.matching.links import Coded
from dovetail.matching.residents import Batch
from dovetail.operators.multiway.expected_results import FULL, ArrivalSketch, KeyCounts

SCHEMAS = {alias: pa.schema([("k", pa.int64()), ("x", pa.int64())]) for alias in "abc"}
PATHS = Paths(parse_graph("a.k = b.k AND b.x = c.x", SCHEMAS))


def test_frequent_keys_are_told_from_rare_ones() -> None:
    """Counts are never too low, and rarely too high, even with more keys than counters."""
    rng = np.random.default_rng(0)
    keys = np.minimum(rng.zipf(1.5, 5000), 2000)
    counts = KeyCounts(256)
    for start in range(0, len(keys), 50):
        counts.add(keys[start : start + 50])
    true = np.bincount(keys, minlength=2001)
    estimated = counts.share(np.arange(2001)) * 5001 - 0.5
    assert (estimated >= true - 1e-6).all()
    assert np.mean(estimated[1:20] / np.maximum(true[1:20], 1)) < 1.1
    assert np.median(estimated[1000:]) < 20


def test_old_counts_fade_when_a_counter_is_full() -> None:
    counts = KeyCounts(16)
    counts.add(np.full(FULL, 7, np.int64))
    assert counts.share(np.array([7]))[0] == pytest.approx(1, abs=0.01)
    counts.add(np.full(FULL // 2, 8, np.int64))
    assert counts.share(np.array([7, 8])) == pytest.approx([0.5, 0.5], abs=0.01)


def test_the_sample_is_uniform() -> None:
    """Early and late rows are equally likely to be in the sample."""
    attributes = PATHS.attributes["a"]
    early = 0
    for seed in range(40):
        arrivals = ArrivalSketch(attributes, 4 * 8 * 50, np.random.default_rng(seed))
        for start in range(0, 1000, 40):
            codes = np.arange(start, start + 40)
            rows = pa.record_batch([pa.array(codes), pa.array(codes)], SCHEMAS["a"].names)
            arrivals.add(Batch.arriving(attributes, Coded(rows, (codes,)), 1))
        sample = arrivals.codes(attributes[0])
        assert len(sample) == len(arrivals) == len(set(sample.tolist())) == 50
        early += int((sample < 500).sum())
    assert arrivals.rate == 1000
    assert 0.45 < early / 2000 < 0.55


def test_selectivities_outlast_a_flush() -> None:
    """Right after a flush, counts are zero: the previous order is kept until there are enough probes."""
    first, second = PATHS.links
    sizes = dict.fromkeys("abc", 10)
    found = Selectivities(PATHS.links)
    hops = {hop.link: hop for hop in PATHS.hops("b")}

    def probe(link_of: Hop, matches: int) -> None:
        found.tally(link_of, FEWEST_PROBES, 10, matches)

    probe(hops[first], 50)
    probe(hops[second], 5)
    assert found.selectivity_of(first, sizes) == 0.5
    assert found.selectivity_of(second, sizes) == 0.05
    found.reset_counts(sizes)
    assert found.selectivity_of(first, sizes) > found.selectivity_of(second, sizes)
    found.tally(hops[first], 1, 10, 0)
    assert found.selectivity_of(first, sizes) == 0.5
    probe(hops[first], 1)
    assert found.selectivity_of(first, sizes) == 0.01
    per_candidate = Selectivities(PATHS.links, "candidate")
    per_candidate.tally(hops[first], FEWEST_PROBES, 10, 32)
    assert per_candidate.selectivity_of(first, sizes) == 0.1
