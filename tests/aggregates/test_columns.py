"""Final results from merged partial results."""

from decimal import Decimal

import pyarrow as pa
import pytest

from dovetail.aggregates import finish, partial_schema
from dovetail.condition.select import parse_aggregates
from dovetail.errors import ConditionError

SCHEMA = pa.schema([("d", pa.decimal128(5, 0)), ("k", pa.int32()), ("w", pa.decimal128(38, 38))])


def finished(text: str, *partials: object) -> object:
    aggregates = parse_aggregates({"a": text}, SCHEMA, pa.schema([]))
    row = dict(zip(partial_schema(aggregates, ()).names, partials, strict=True))
    return finish(aggregates, (), pa.RecordBatch.from_pylist([row], partial_schema(aggregates, ())))["a"][0].as_py()


@pytest.mark.parametrize(
    ("total", "count", "average"),
    [
        (1, 3, "0.3333"),
        (2, 3, "0.6667"),
        (-2, 3, "-0.6667"),
        (1, 20000, "0.0001"),  # rounded half up
        (-1, 20000, "-0.0001"),
        (1, 20001, "0.0000"),
        (99999, 1, "99999.0000"),
    ],
)
def test_averages_of_decimals(total: int, count: int, average: str) -> None:
    assert finished("avg(l.d)", Decimal(total), count) == Decimal(average)


def test_averages_of_many_digits() -> None:
    third = Decimal("0." + "3" * 38)
    assert finished("avg(l.w)", third, 1) == third


def test_merging_nothing_is_no_pair() -> None:
    assert finished("count(*)", None) == 0
    assert finished("sum(l.k)", None) is None
    assert finished("avg(l.k)", None, None) is None
    assert finished("avg(l.d)", None, 0) is None


@pytest.mark.parametrize("total", [2**63, -(2**63) - 1])
def test_a_sum_beyond_64_bits_is_an_error(total: int) -> None:
    with pytest.raises(ConditionError, match=r"sum\(l\.k\): a value does not fit in int64"):
        finished("sum(l.k)", Decimal(total))
    assert finished("avg(l.k)", Decimal(total), 2) == total / 2


def test_sums_of_64_bits() -> None:
    assert finished("sum(l.k)", Decimal(2**63 - 1)) == 2**63 - 1
    assert finished("sum(l.k)", Decimal(-(2**63))) == -(2**63)
