"""The pages of the documentation, their blocks of Python, and the set-up that each page assumes.

Most pages are self-contained: their blocks define everything they need, in the order of the page. The others have a
set-up, which takes a directory, and a session if the page needs Spark. A set-up yields the names that the blocks of its
page use, and replacements for the reader's addresses (`/shared` and `/tmp/dovetail` are always replaced).

A block of `text` right after a block of Python is its output; a block of `varies` is the same except for figures. A
block that begins with NOT_RUN is only compiled, and tells the reader why.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLIGHT = "grpc://carrier.example:8815"
POSTGRES = "postgresql://reader@db.example/shop"
SHARED = ("/shared", "/tmp/dovetail")
NOT_RUN = "# Not run by the tests: "
SLOW = {"docs/tutorials/flight_stream.md"}
"""Pages that take more than a few seconds, because of streams."""


class Block(NamedTuple):
    language: str
    text: str
    line: int  # in its page

    @property
    def is_output(self) -> bool:
        return self.language in ("text", "varies")

    @property
    def is_run(self) -> bool:
        return self.language == "python" and not self.text.startswith(NOT_RUN)


class Ready(NamedTuple):
    """What a page needs: names, and replacements for addresses."""

    names: Mapping[str, Any]
    addresses: Mapping[str, str] = {}


SetUp = Callable[..., AbstractContextManager[Ready]]


def pages() -> list[str]:
    """All pages with blocks of Python."""
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [str(page.relative_to(ROOT)) for page in found if any(b.language == "python" for b in blocks(page))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    assert text.count("\n```") + text.startswith("```") == 2 * len(FENCED.findall(text)), f"{page}: an odd fence"
    return [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in FENCED.finditer(text)]


def needs_spark(page: str) -> bool:
    if page in SET_UPS:
        return "spark" in inspect.signature(SET_UPS[page]).parameters
    return any("local_session" in block.text for block in blocks(ROOT / page) if block.is_run)


def set_up(page: str) -> SetUp:
    return SET_UPS.get(page, alone)


def run(block: Block, page: str, names: dict[str, Any], complete: Callable[[Any], None]) -> None:
    """Run a block, statement by statement; `complete` gets the values that would be shown at a prompt."""
    tree = ast.parse(block.text, page)
    ast.increment_lineno(tree, block.line - 1)
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            complete(eval(compile(ast.Expression(statement.value), page, "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), page, "exec"), names)


# A few rows, such that each example has results.

rng = np.random.default_rng(0)

ORDERS = pa.table({"id": np.arange(200), "custkey": np.arange(200) % 40})
ASKS, BIDS = (
    pa.table({"price": [1.0, 2.0, 3.0], name: pa.array([0, 60, 120], pa.timestamp("s", "UTC"))})
    for name in ("asked", "offered")
)
PAYMENTS = pa.table({"order_id": rng.integers(0, 200, 300), "amount": rng.integers(0, 100, 300)})
TARIFFS = pa.table({"low": [0, 50], "high": [50, 90], "fee": [1, 2]})
PARCELS = pa.table({"id": np.arange(300), "order_id": rng.integers(0, 200, 300)})
ITEMS = pa.table({"order_id": np.repeat(np.arange(200), 3), "price": rng.integers(0, 100, 600)})
CUSTOMERS = pa.table({"custkey": np.arange(40), "nationkey": np.arange(40) % 5})
NATIONS = pa.table({"nationkey": np.arange(5), "name": ["PERU", "CHILE", "KENYA", "NEPAL", "OMAN"]})
MACHINES = [
    pa.table(
        {
            "power": rng.integers(0, 50, 100),
            "cool": rng.integers(0, 50, 100),
            "ts": pa.array(range(100), pa.timestamp("s", "UTC")),
        }
    )
    for _ in range(2)
]
TRIPS = pa.table({"distance": rng.random(500), "fare": rng.random(500)})


def wide_table(rows: int) -> pa.Table:
    """A table for conditions of every kind."""
    low = rng.integers(0, 100, rows)
    return pa.table(
        {
            "id": rng.integers(0, 100, rows),
            "k": rng.integers(0, 50, rows),
            "t": rng.integers(0, 100, rows),
            "x": rng.random(rows) * 100,
            "low": low,
            "high": low + 10,
            "at": rng.integers(0, 100, rows),
            "region": [f"region {i % 3}" for i in range(rows)],
            "amount": rng.integers(0, 10, rows),
        }
    )


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table)


def stream(spark: SparkSession, place: Path, table: pa.Table) -> DataFrame:
    """A stream that reads two files."""
    directory = place / f"stream-{len(list(place.iterdir()))}"
    directory.mkdir()
    half = table.num_rows // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, directory / f"{number}.parquet")
    return spark.readStream.schema(frame(spark, table).schema).parquet(str(directory))


def write(place: Path, **tables: pa.Table) -> None:
    """Write each table as a file, and as a directory with a file."""
    for name, table in tables.items():
        (place / name).mkdir(parents=True)
        pq.write_table(table, place / name / "part-0.parquet")
        pq.write_table(table, place / f"{name}.parquet")


@contextmanager
def flight_server(**tables: pa.Table) -> Iterator[str]:
    with dovetail.sources.flight_server.TableServer(tables) as server:
        yield f"grpc://127.0.0.1:{server.port}"


@contextmanager
def postgres_server(**tables: pa.Table) -> Iterator[str]:
    import psycopg
    from tests.sources.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            for name, table in tables.items():
                columns = ", ".join(f"{column} bigint" for column in table.column_names)
                connection.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({table.column_names[0]}))")
                rows = ", ".join(str(tuple(row.values())) for row in table.to_pylist())
                connection.execute(f"INSERT INTO {name} VALUES {rows}")
        yield server.dsn()
    finally:
        server.remove()


# The pages.


@contextmanager
def alone(place: Path, **_: Any) -> Iterator[Ready]:
    yield Ready({})


@contextmanager
def algorithms(place: Path) -> Iterator[Ready]:
    yield Ready({"dovetail": dovetail, "left": wide_table(400), "right": wide_table(300)})


@contextmanager
def early(place: Path, spark: SparkSession) -> Iterator[Ready]:
    yield Ready({"dovetail": dovetail, "trips": frame(spark, TRIPS), "zones": frame(spark, TRIPS)})


@contextmanager
def live(place: Path, spark: SparkSession) -> Iterator[Ready]:
    streams = {"order_stream": stream(spark, place, ORDERS), "parcel_stream": stream(spark, place, PARCELS)}
    yield Ready({"dovetail": dovetail, "spark": spark, "orders": ORDERS, "parcels": PARCELS, **streams})


@contextmanager
def multijoin(place: Path) -> Iterator[Ready]:
    yield Ready({"dovetail": dovetail, "orders": ORDERS, "customers": CUSTOMERS, "nations": NATIONS})


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    tables = {"orders": ORDERS, "parcels": PARCELS}
    with flight_server(**tables) as flight, postgres_server(**tables) as postgres:
        yield {FLIGHT: flight, POSTGRES: postgres}


@contextmanager
def sources(place: Path) -> Iterator[Ready]:
    with servers() as addresses:
        yield Ready({}, addresses)


@contextmanager
def spark_sources(place: Path, spark: SparkSession) -> Iterator[Ready]:
    with servers() as addresses:
        yield Ready({"spark": spark}, addresses)


@contextmanager
def streaming(place: Path, spark: SparkSession) -> Iterator[Ready]:
    ended = {}
    for name, table in (("orders", ORDERS), ("parcels", PARCELS)):
        kinds = pa.array([None] * (table.num_rows - 1) + ["end"], pa.string())
        ended[name] = stream(spark, place, table.append_column("kind", kinds))
    tables = {"payments": stream(spark, place, PAYMENTS), "tariffs": frame(spark, TARIFFS)}
    tables |= {"asks": stream(spark, place, ASKS), "bids": stream(spark, place, BIDS)}
    yield Ready({"dovetail": dovetail, **tables, **ended})


@contextmanager
def windows(place: Path, spark: SparkSession) -> Iterator[Ready]:
    machines = {"racks": stream(spark, place, MACHINES[0]), "coolers": stream(spark, place, MACHINES[1])}
    yield Ready({"dovetail": dovetail, "trips": stream(spark, place, TRIPS), **machines})


@contextmanager
def diag(place: Path, spark: SparkSession) -> Iterator[Ready]:
    write(place, orders=ORDERS, items=ITEMS)
    write(place / "shared", orders=ORDERS, items=ITEMS)
    yield Ready({"dovetail": dovetail, "spark": spark, "orders": ORDERS, "items": ITEMS})


@contextmanager
def operations(place: Path, spark: SparkSession) -> Iterator[Ready]:
    """The state after a query that has joined some rows."""
    state, checkpoint = str(place / "shared" / "dovetail"), str(place / "shared" / "checkpoint")
    orders, payments = (stream(spark, place, table.slice(0, 100)) for table in (ORDERS, PAYMENTS))
    joined: DataFrame = dovetail.join(orders, payments, "l.id = r.order_id", state_dir=state)
    writer = joined.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.format("noop").start().awaitTermination()
    new = {"new_orders": stream(spark, place, ORDERS.slice(100)), "new_payments": stream(spark, place, PAYMENTS)}
    yield Ready({"dovetail": dovetail, "spark": spark, **new})


@contextmanager
def session(place: Path, spark: SparkSession) -> Iterator[Ready]:
    yield Ready({"dovetail": dovetail, "spark": spark})


SET_UPS: dict[str, SetUp] = {
    "docs/algorithms.md": algorithms,
    "docs/at_rest.md": algorithms,
    "docs/early.md": early,
    "docs/live.md": live,
    "docs/multijoin.md": multijoin,
    "docs/operations.md": operations,
    "docs/operators/diag.md": diag,
    "docs/prometheus.md": session,
    "docs/sources.md": sources,
    "docs/spark_sources.md": spark_sources,
    "docs/streaming.md": streaming,
    "docs/windows.md": windows,
}
