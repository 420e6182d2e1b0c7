"""What all tests share: one Spark session, made when a test first asks for it, and Hypothesis's settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.effort import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Compiling a kernel inside an example takes seconds, so there are no deadlines.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=EXAMPLES, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Tests are short: the JVM's second compiler and parallel collector cost more than they save.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from dovetail.spark.session.session import local_session

    session = local_session("dovetail-tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[None]:
    """For streams: every micro-batch runs a task and commits a state store for each partition."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before or "4")
