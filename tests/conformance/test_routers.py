"""Every router sends each matching pair of random tables to exactly one cell."""

import random

import numpy as np
import pytest
from tests.seed import seeded

from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.matching.equal_keys import HashKeys
from dovetail.routing.routers import HashRouter, Heavy, OneBucketRouter
from dovetail.testing import CONDITIONS, check_router, random_table


@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("cells", [1, 2, 7, 12])
def test_one_bucket(on: str, cells: int) -> None:
    rng = seeded(cells)
    left, right = random_table(rng, 30), random_table(rng, 20)
    condition = parse(on, left.schema, right.schema)
    check_router(OneBucketRouter.best_shape(condition, cells, 30, 20), left, right, on)


@pytest.mark.parametrize("on", [c for c in CONDITIONS if " = " in c and " OR " not in c])
@pytest.mark.parametrize("cells", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_hash_with_heavy_keys(on: str, cells: int, seed: int) -> None:
    rng = seeded(seed)
    left, right = random_table(rng, 30), random_table(rng, 20)
    condition = parse(on, left.schema, right.schema)
    hashes = np.unique(HashKeys(condition).hash(Side.LEFT, left.to_batches()[0]).hashes).tolist()
    heavy = {h: Heavy(rng.choice(list(Side)), rng.randrange(1, cells + 1)) for h in hashes if rng.random() < 0.5}
    check_router(HashRouter(condition, cells, heavy), left, right, on)


@pytest.mark.parametrize(("left", "right", "shape"), [(10, 10, (3, 3)), (1000, 10, (9, 1)), (10, 1000, (1, 9))])
def test_the_grid_follows_the_sizes(left: int, right: int, shape: tuple[int, int]) -> None:
    schema = random_table(random.Random(0), 0).schema
    router = OneBucketRouter.best_shape(parse("l.x < r.x", schema, schema), 9, left, right)
    assert (router.lines, router.columns) == shape
