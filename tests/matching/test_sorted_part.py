"""A zone map excludes a part only if no pair of its rows and the probes matches."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded

from dovetail.condition import parse
from dovetail.matching.sorted_part import ZoneMaps, can_match
from dovetail.testing import CONDITIONS, definition, random_table

MORE = (
    "l.k <= r.k AND l.n >= r.n",
    "l.x - r.x BETWEEN -0.5 AND 1",
    "l.t - r.t <= INTERVAL 1 SECOND AND r.t - l.t <= INTERVAL 1 SECOND",
    "l.k <= r.x AND r.k <= l.x",
    "abs(l.x - r.x) < 0.75 AND l.k = r.k",
)


@pytest.mark.parametrize("on", [*CONDITIONS, *MORE])
def test_what_is_excluded_has_no_pair(on: str) -> None:
    rng = seeded(on)
    for _ in range(repeat(200)):
        left, right = random_table(rng, rng.choice([0, 1, 2])), random_table(rng, rng.choice([0, 1, 2]))
        zones = ZoneMaps(parse(on, left.schema, right.schema))
        reach, zone = (
            ask(
                table.combine_chunks().to_batches()[0]
                if table.num_rows
                else pa.RecordBatch.from_pylist([], left.schema)
            )
            for ask, table in ((zones.reach, left), (zones.zone, right))
        )
        assert can_match(reach, zone) or not definition(left, right, on)


@pytest.mark.parametrize(
    ("on", "matches"),
    [
        ("l.k = r.k", [False, True, False]),
        ("l.k < r.k", [False, True, True]),
        ("l.k <= r.k", [False, True, True]),
        ("l.k > r.k", [True, True, False]),
        ("abs(l.k - r.k) <= 5", [False, True, True]),
        ("abs(l.x - r.x) < 4.5", [False, True, False]),
        ("l.k < r.x AND r.k < l.x", [False, True, False]),
        ("l.k = r.k AND l.k > r.x", [False, True, False]),
        ("l.k = r.k OR l.x = r.x", [True, True, True]),
        ("l.k <> r.k", [True, True, True]),
        ("l.k = r.k AND r.x > 100", [False, False, False]),
    ],
)
def test_parts_below_and_around_and_above_the_probes(on: str, matches: list[bool]) -> None:
    def rows(*keys: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"k": pa.array(keys), "x": pa.array([float(key) for key in keys])})

    schema = rows(0).schema
    zones = ZoneMaps(parse(on, schema, schema))
    reach = zones.reach(rows(10, 15))
    assert [can_match(reach, zones.zone(part)) for part in (rows(1, 2), rows(12, 3), rows(20, 30))] == matches


def test_keys_at_the_ends_of_64_bits() -> None:
    least, most = -(2**63), 2**63 - 1
    conditions: dict[str, Callable[[int, int], bool]] = {
        "abs(l.k - r.k) <= 2": lambda left, right: abs(left - right) <= 2,
        "l.k - r.k BETWEEN 1 AND 3": lambda left, right: 1 <= left - right <= 3,
        "l.k < r.k": lambda left, right: left < right,
        "l.k >= r.k": lambda left, right: left >= right,
    }
    schema = pa.schema({"k": pa.int64()})
    for on, holds in conditions.items():
        zones = ZoneMaps(parse(on, schema, schema))
        for keys in ([least], [most], [least, most], [least, 0], [0, most]):
            for others in ([least + 1], [most - 1], [least], [most], [0]):
                left, right = (pa.record_batch({"k": pa.array(some, pa.int64())}) for some in (keys, others))
                matches = any(holds(key, other) for key in keys for other in others)
                assert can_match(zones.reach(left), zones.zone(right)) or not matches
