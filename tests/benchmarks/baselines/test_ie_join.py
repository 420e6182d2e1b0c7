import itertools

import numpy as np
import pytest
from benchmarks.baselines.ie_join import ie_join_at_rest
from benchmarks.baselines.nested_loop import nested_loop_at_rest
from benchmarks.baselines.predicates import Floats, Query
from benchmarks.baselines.work import Work
from tests.benchmarks.window_oracle import HOLDS, VALUES
from tests.seed import generator


def table(seed: int, rows: int) -> Floats:
    return generator(seed).choice(VALUES, (rows, 2))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("names", list(itertools.product(("<", "<=", ">", ">="), repeat=2)))
@pytest.mark.parametrize(("left_rows", "right_rows"), [(40, 90), (0, 3), (3, 0)])
def test_ties_per_operator(names: tuple[str, str], left_rows: int, right_rows: int) -> None:
    left, right = table(0, left_rows), table(1, right_rows)
    found = ie_join_at_rest(Query.of(*names), left, right, Work())
    wanted = [
        (i, j)
        for i, j in itertools.product(range(left_rows), range(right_rows))
        if all(HOLDS[name](x, y) for name, x, y in zip(names, left[i], right[j], strict=True))
    ]
    assert sorted(zip(found.left, found.right, strict=True)) == wanted


def test_as_the_nested_loop() -> None:
    """With more results than fit in the initial arrays, and NaN on both sides."""
    left, right = table(2, 200), table(3, 300)
    left[::7, 0] = right[::5, 1] = np.nan
    query = Query.of("<=", "<")
    found = ie_join_at_rest(query, left, right, Work())
    kept_left, kept_right = (np.flatnonzero(~np.isnan(side).any(axis=1)) for side in (left, right))
    wanted = nested_loop_at_rest(query, left[kept_left], right[kept_right], Work())
    pairs = zip(kept_left[wanted.left], kept_right[wanted.right], strict=True)
    assert sorted(zip(found.left, found.right, strict=True)) == sorted(pairs)


def test_only_inequalities() -> None:
    with pytest.raises(ValueError, match="two inequalities"):
        ie_join_at_rest(Query.of("<", "="), table(0, 1), table(1, 1), Work())
