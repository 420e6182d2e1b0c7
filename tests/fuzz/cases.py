"""A random join, drawn from a seed: tables, condition, join type, budget, and the call to make."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

import pyarrow as pa
from tests.condition.random_conditions import Text
from tests.fuzz.columns import COLUMNS, EXTREME, PAYLOADS, Spread, random_column
from tests.fuzz.conditions import Conditions, column

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
LARGE = (2000, 200)
ROWS = (0, 1, 5, *[12, 25, 40] * 5)
MOST = ((1, 2, 3, 99), (2, 3), (3, 6), (99,))  # number of distinct values of a column
MEMORY = 64 * 1024  # the smallest accepted budget
EXACT = ("int", "decimal")
SUMMED = (*EXACT, "float", "double")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Aggregates (name -> SQL), and the columns to group by, in both dialects."""

    wanted: dict[str, Text]
    by: dict[str, str]  # column -> its form in DuckDB


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    left: pa.Table
    right: pa.Table
    on: Text
    how: str
    memory: int | None
    share: int  # budget charged per chunk, in multiples of its size: large values make small chunks
    large_group: int  # a group of equal keys with at least this many pairs gets its own kernel
    aggregation: Aggregation | None = field(default=None)

    def __str__(self) -> str:
        """Everything needed to reproduce the case."""
        setting = f"memory={self.memory}, share={self.share}, large_group={self.large_group}"
        lines = [f"draw({self.seed}): how={self.how!r}, {setting}"]
        lines += [f"on = {self.on.spark!r}", f"duckdb = {self.on.duck!r}"]
        if self.aggregation is not None:
            lines.append(f"aggregates = { ({n: t.spark for n, t in self.aggregation.wanted.items()}) }")
            lines.append(f"by = {list(self.aggregation.by)}")
        for name, table in (("left", self.left), ("right", self.right)):
            rows = table.to_pydict() if table.num_rows <= LARGE[1] else f"{table.num_rows} rows"
            lines.append(f"{name} = pa.table({rows}, pa.schema({[(f.name, str(f.type)) for f in table.schema]}))")
        return "\n".join(lines)


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    large = rng.random() < 0.02
    on = Conditions(rng).condition()
    rows = rng.sample(LARGE, 2) if large else [rng.choice(ROWS) for _ in range(2)]
    spread = Spread(large or rng.random() < 0.2, rng.choice(MOST), rng.choice((0.0, 0.0, 0.1, 0.3)))
    aggregation = _aggregation(rng) if rng.random() < 0.25 else None
    left, right = (_table(rng, alias, on, aggregation, count, spread) for alias, count in zip("lr", rows, strict=True))
    pieces = rng.choice((0, 0, 2, 3))
    share = max(3, MEMORY * pieces // (2 * max(left.nbytes, right.nbytes, 1)))
    large_group = rng.choice((1, 30, 1 << 14))
    return Case(seed, left, right, on, rng.choice(HOW), MEMORY if pieces else None, share, large_group, aggregation)


def _table(
    rng: random.Random, alias: str, on: Text, aggregation: Aggregation | None, rows: int, spread: Spread
) -> pa.Table:
    """The columns in use, and two more; in one or several chunks."""
    texts = [on.spark]
    if aggregation is not None:
        texts += [text.spark for text in aggregation.wanted.values()] + list(aggregation.by)
    names = dict.fromkeys(re.findall(rf"\b{alias}\.(\w+)", " ".join(texts)))
    names |= dict.fromkeys(rng.sample([*COLUMNS, *PAYLOADS], 2))
    columns = {name: random_column(rng, name, rows, spread) for name in names}
    table = pa.table({"row": pa.array(range(rows), pa.int64()), **columns})
    if rng.random() < 0.7:
        return table
    cut = rng.randint(0, rows)
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def _aggregation(rng: random.Random) -> Aggregation:
    wanted = {"pairs": Text("count(*)", "count(*)")}
    for number in range(rng.randrange(5)):
        wanted[f"a{number}"] = _aggregate(rng)
    side = rng.choice("lr")
    plain = [name for name, kind in COLUMNS.items() if kind.family != "point"]
    by = rng.sample(plain, rng.choice((0, 0, 1, 1, 2)))
    return Aggregation(wanted, {f"{side}.{name}": column(side, name).duck for name in by})


def _aggregate(rng: random.Random) -> Text:
    function = rng.choice(("count", "sum", "avg", "min", "max"))
    names = [name for name, kind in COLUMNS.items() if kind.family in SUMMED and name not in (*EXTREME, "n45")]
    if function in ("count", "min", "max"):
        names = [name for name, kind in COLUMNS.items() if kind.family != "point"]
    value = column(rng.choice("lr"), rng.choice(names))
    duck = f"{function}({value.duck})"
    if function == "avg" and value.family in EXACT:  # DuckDB would sum doubles
        duck = f"CAST(sum({value.duck}) AS DOUBLE) / count({value.duck})"
    elif function in ("sum", "avg") and value.family == "float":
        duck = f"{function}(CAST({value.duck} AS DOUBLE))"
    return Text(f"{function}({value.spark})", duck)
