"""Shared by all tests: the seed of the run, Hypothesis's settings, and one Spark session, which is started lazily."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tools.java_options import set_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

set_options()

# A background job of a shell (`make test &`) ignores Ctrl-C, and so do its child processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="the seed of all random examples; by default each run draws a new one")
    parser.addoption("--part", metavar="K/N", help="run only one of N parts of the tests: the Kth of every N tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the seed as an option, because xdist passes the options of the main process to its workers."""
    if config.option.seed is not None:
        os.environ["DOVETAIL_TEST_SEED"] = str(config.option.seed)
    from tests.effort import EXAMPLES  # reads the seed when imported
    from tests.seed import SEED

    config.option.seed = SEED
    config.option.hypothesis_seed = str(SEED)  # read by Hypothesis's plugin, which is configured later
    # Compiling a kernel inside an example takes seconds, so there are no deadlines.
    settings.register_profile("ci", database=None, deadline=None, max_examples=EXAMPLES)
    settings.register_profile("dev", deadline=None)
    settings.register_profile("fuzz", database=None, deadline=None, max_examples=2000)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of this run, unless they are requested by name, and the requested part of the suite."""
    by_name = config.option.keyword or any("::" in argument for argument in config.args)
    from tests.turns import in_turns  # imported only when the seed is known

    kept = items if by_name else in_turns(items)
    if config.option.part:
        part, parts = map(int, config.option.part.split("/"))
        kept = kept[part - 1 :: parts]  # spreads the cases of a test, which take about the same time
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (`pytest --seed N` or `make test SEED=N` has it again)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("Seed", f"pytest --seed {item.config.option.seed} -n 0 '{item.nodeid}'"))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from dovetail.spark.session.session import local_session

    session = local_session("dovetail-tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[None]:
    """For fast streams: every micro-batch runs a task and commits a state store for each partition."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before or "4")
