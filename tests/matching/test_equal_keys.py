import pyarrow as pa
import pytest
from tests.nans import NANS

from dovetail.matching.equal_keys import hash_column


@pytest.mark.parametrize("type_", NANS, ids=str)
def test_nans_of_any_bits_have_one_hash(type_: pa.DataType) -> None:
    (nan,) = set(hash_column(pa.array(NANS[type_])).tolist())
    assert nan not in hash_column(pa.array([0.0, 1.0, float("inf")]).cast(type_)).tolist()
    assert nan == hash_column(pa.array([float("nan")]))[0]  # for any width
