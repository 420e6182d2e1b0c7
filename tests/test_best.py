"""The best partner of each row, against the definition and against other libraries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.best_oracle import check_join
from tests.effort import repeat
from tests.random_rows import MORE_CONDITIONS, random_rows
from tests.seed import seeded

import dovetail
from dovetail.testing.random_joins import CONDITIONS

ORDERS = (
    None,
    "r.x",
    "r.s DESC",
    "r.w",
    "r.n DESC NULLS FIRST",
    ["r.k", "r.x DESC"],
    "abs(l.x - r.x)",
    "abs(l.f - r.f)",
    "abs(l.t - r.t)",
    "abs(l.n - r.n)",
    "abs(l.w - r.w) DESC",
    "l.k - r.k",
    "r.x - l.x",
    "r.t DESC",
    "r.t",
    "r.k",
    "concat(l.s, r.s)",
    ["abs(l.k - r.k)", "r.s DESC"],
    ["abs(l.w - r.w)", "r.x"],
    "distance(l.x, l.k, r.x, r.k)",
)
OF_TIME = (
    "TRUE",
    "l.t >= r.t",
    "l.t > r.t AND l.k = r.k",
    "l.t <= r.t AND l.s = r.s AND l.k = r.k",
    "l.k = r.k AND l.t >= r.t AND l.t <= r.t + INTERVAL 2 SECONDS",
    "l.k = r.k AND l.t < r.t AND r.t <= l.t + INTERVAL 2 SECONDS",
    "l.x >= r.x AND l.x <= r.x + 1.5 AND l.s = r.s",
    "l.x < r.x",
    "abs(l.x - r.x) <= 1 AND l.s = r.s",
    "l.k >= r.k + 1 AND l.k <= r.k + 3",
    "l.s = r.s AND l.x != r.x",
    "l.s >= r.s",
    "l.w <= r.w AND l.k = r.k",
)


@pytest.mark.parametrize("case", range(repeat(950)))
def test_random_joins_are_the_definition(case: int) -> None:
    rng = seeded("best", case)
    on = rng.choice(OF_TIME if rng.random() < 0.6 else (*CONDITIONS, *MORE_CONDITIONS))
    order = rng.choice(ORDERS)
    ties = rng.choice(("any", "all")) if order is not None else "any"
    check_join(
        random_rows(rng),
        random_rows(rng),
        on,
        rng.choice(("inner", "left")),
        top=rng.choice((1, 1, 1, 2, 3, 100)),
        order_by=order,
        ties=ties,
        threads=rng.choice((1, 2)),
    )


@pytest.mark.parametrize("limit", [1, 7, 60])
def test_a_limit_has_the_first_rows(limit: int) -> None:
    """In a left join each left row has a result, so later rows are not processed."""
    left, right = (pa.table({name: np.random.default_rng(4).random(50)}) for name in "xy")
    for how in ("left", "inner"):
        whole, some = (
            dovetail.join(left, right, "l.x < r.y", how, top=2, order_by="r.y", limit=most) for most in (None, limit)
        )
        assert some.to_pydict() == whole.slice(0, limit).to_pydict()
