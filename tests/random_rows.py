"""Random tables with more types than in `dovetail.testing`, and conditions of every class over them."""

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.testing import random_table

MORE_CONDITIONS = (
    "TRUE",
    "l.k = r.k AND abs(l.x - r.x) <= 1",
    "l.k = r.k AND l.x < r.x AND l.n >= r.n",
    "l.s = r.s AND l.k < r.k",
    "l.s = r.s AND l.k = r.k AND l.t = r.t AND l.d >= r.d",
    "l.k < r.k AND l.x > r.x AND l.n <= r.n",
    "l.k != r.k AND l.s = r.s",
    "l.k < r.k AND l.s != r.s",
    "l.x - r.x BETWEEN -1 AND 2",
    "l.x < r.x + 1.5 AND l.x >= r.x - 1",
    "l.n BETWEEN r.n - 1 AND r.n + 2.5",
    "l.t < r.t + INTERVAL 1 SECOND AND l.t > r.t - INTERVAL 1 SECOND",
    "l.w < r.w",
    "l.w = r.w AND l.s <= r.s AND l.d >= r.d",
    "l.s >= r.s AND l.w != r.w",
    "(l.k, l.n) OVERLAPS (r.k, r.n)",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) < 2",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) < 2 AND l.s < r.s",
    "l.n18 BETWEEN r.n18 - 1.00001 AND r.n18 + 1",
    "l.w BETWEEN r.w - 1 AND r.w + 1",
    "l.long BETWEEN r.long - 1.00001 AND r.long + 1",
    "l.xmin <= r.xmax AND l.xmax >= r.xmin AND l.ymin < r.ymax AND l.ymax > r.ymin",
    "l.xmin < r.xmax AND l.xmax >= r.xmin AND l.ymin < r.ymax AND l.ymax >= r.ymin AND l.k = r.k",
    "l.smin <= r.smax AND l.smax >= r.smin AND l.ymin < r.ymax AND l.ymax > r.ymin",
    "distance(l.x, l.k, r.x, r.k) <= 1",
    "sqrt(pow(l.f - r.f, 2) + pow(l.x - r.x, 2)) < 1.5",
    "(l.f - r.f) * (l.f - r.f) + (l.n - r.n) * (l.n - r.n) <= 2.25 AND l.b = r.b",
    "distance(l.x, l.f, l.k, r.x, r.f, r.k) < 2",
    "distance(l.x, l.f, l.k, l.xmin, r.x, r.f, r.k, r.xmin) <= 2",
    "distance(l.v, r.v) <= 1",
    "distance(l.u, r.u) < 1.5",
    "distance(l.u, r.u) < 1.5 AND l.s = r.s",
    "distance(l.u, r.u) < 1.5 AND distance(l.v, r.v) <= 2 AND abs(l.k - r.k) <= 1",
)

EXTRA: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "f": (pa.float32(), (0.1, 0.2, 1.1, 1.6, -1.4, float("inf"), float("nan"), None)),
    "n18": (pa.decimal128(18, 2), tuple(map(Decimal, ("0.50", "1.50", "1.51", "2.50", "-0.50")))),
    "long": (pa.decimal128(18, 0), tuple(map(Decimal, (10**17, 10**17 + 1, 10**17 + 2, -(10**17), 5)))),
    "xmin": (pa.float64(), (0.0, 1.0, 2.0, -0.0, float("nan"), None)),
    "xmax": (pa.float64(), (1.0, 2.0, 3.0, 0.0, float("inf"), None)),
    "ymin": (pa.int32(), (0, 1, 2, 5, None)),
    "ymax": (pa.int32(), (1, 2, 3, 0, None)),
    "smin": (pa.string(), ("a", "b", "c", None)),
    "smax": (pa.string(), ("a", "c", "d", None)),
    "v": (pa.list_(pa.float32(), 2), ([0.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.0, None], [float("nan"), 0.0], None)),
    "u": (pa.list_(pa.float64()), ([], [0.0], [1.0], [0.0, 0.0], [1.0, 1.0], [0.0, None], [1.0, 0.0, 1.0, 0.0], None)),
}


def random_rows(rng: random.Random) -> pa.Table:
    table = random_table(rng)
    for name, (type_, values) in EXTRA.items():
        table = table.append_column(name, pa.array([rng.choice(values) for _ in range(table.num_rows)], type_))
    return table
