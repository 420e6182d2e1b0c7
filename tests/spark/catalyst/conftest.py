"""A session with two tables, points and bands, in which Dovetail runs joins of any size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.spark.catalyst.queries import BANDS, POINTS

import dovetail
from dovetail.spark.catalyst import replacing


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(replacing.LEAST_PAIRS, "0")
    session.sql(POINTS).createOrReplaceTempView("points")
    session.sql(BANDS).createOrReplaceTempView("bands")
    return session


@pytest.fixture
def enabled(session: SparkSession) -> Iterator[SparkSession]:
    with dovetail.enable(session):
        yield session
