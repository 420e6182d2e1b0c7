"""Labels of cells: with Spark's hash partitioning, the numbers of cells per partition differ by at most one."""

from collections import Counter

import pytest

from dovetail.spark.exchange.labels import label_of_partition, spark_partition, spread_labels


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 8, 200])
@pytest.mark.parametrize("rounds", [0.5, 1, 1.5, 4])
def test_cells_fall_on_partitions_evenly(partitions: int, rounds: float) -> None:
    cells = max(1, int(rounds * partitions))
    labels = spread_labels(cells, partitions)
    assert len(set(labels)) == len(labels) == cells
    loads = Counter(spark_partition(label, partitions) for label in labels)
    assert set(loads) <= set(range(partitions))
    least, most = cells // partitions, -(-cells // partitions)
    assert {loads[partition] for partition in range(partitions)} <= {least, most}


def test_partitions_are_those_of_spark() -> None:
    """Spark's `SELECT hash(cell)` for the numbers 0 to 3 as INT, modulo the number of partitions."""
    hashes = [933211791, -559580957, 1765031574, -1823081949]
    for partitions in (1, 7, 8, 2**32):
        assert [spark_partition(cell, partitions) for cell in range(4)] == [h % partitions for h in hashes]


@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_a_label_for_each_partition(partitions: int) -> None:
    labels = [label_of_partition(partition, partitions) for partition in range(partitions)]
    assert [spark_partition(label, partitions) for label in labels] == list(range(partitions))
