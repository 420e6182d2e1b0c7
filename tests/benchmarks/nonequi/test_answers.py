"""Contenders that are installed for tests answer every case as defined: all pairs, checked one by one."""

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.nonequi.answer import Answer, answer_of
from benchmarks.nonequi.case import Case, write_tables
from benchmarks.nonequi.cases import CASES
from benchmarks.nonequi.contenders import find
from benchmarks.nonequi.question import (
    AsOf,
    EitherEqual,
    Nearest,
    Pairs,
    Streams,
    SumModulo,
    Term,
    WindowSums,
    comparisons,
)

ROWS = 300
OPERATORS: dict[str, Any] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def holds(term: Term, left: pa.Table, right: pa.Table) -> np.ndarray:
    """Whether the terms hold, for each pair of rows."""

    def column(name: str) -> np.ndarray:
        table, shape = (left, (-1, 1)) if name in left.column_names else (right, (1, -1))
        return table[name].to_numpy().reshape(shape)

    match term:
        case EitherEqual(pairs):
            return np.logical_or.reduce([column(a) == column(b) for a, b in pairs])
        case SumModulo(a, b, modulus, symbol, remainder):
            return OPERATORS[symbol]((column(a) + column(b)) % modulus, remainder)
    found = comparisons([term])
    assert found is not None
    return np.logical_and.reduce(
        [OPERATORS[one.operator](column(one.left), column(one.right) + one.shift) for one in found]
    )


def by_definition(case: Case, left: pa.Table, right: pa.Table) -> pa.Table:
    match case.question:
        case AsOf(left_time, right_time, keys):
            before = holds(comparison(left_time, ">=", right_time), left, right)
            if keys:
                before &= holds(comparison(keys[0], "=", keys[1]), left, right)
            last = np.where(before, right[right_time].to_numpy(), -1).argmax(axis=1)
            return pa.table({"l_id": left["l_id"], "r_id": pa.array(last, mask=~before.any(axis=1))})
        case Nearest((lx, ly), (rx, ry), k):
            x = left[lx].to_numpy()[:, None] - right[rx].to_numpy()
            y = left[ly].to_numpy()[:, None] - right[ry].to_numpy()
            near = (x**2 + y**2).argsort(axis=1)[:, :k]
            return pa.table({"l_id": np.repeat(np.arange(len(near)), k), "r_id": near.ravel()})
        case WindowSums(terms, value):
            found = np.logical_and.reduce([holds(term, left, right) for term in terms])
            n = found.sum(axis=1)
            return pa.table({"n": n, "total": pa.array((found * right[value].to_numpy()).sum(axis=1), mask=n == 0)})
        case Pairs(terms) | Streams(terms):
            how = case.question.how if isinstance(case.question, Pairs) else "inner"
            found = np.logical_and.reduce([holds(term, left, right) for term in terms])
            alone = (~found.any(axis=1)).nonzero()[0]
            if how == "left_anti":
                return pa.table({"l_id": alone})
            pairs = found.nonzero()
            if how == "left":
                nothing = pa.nulls(len(alone), pa.int64())
                pairs = np.append(pairs[0], alone), pa.concat_arrays([pa.array(pairs[1]), nothing])
            return pa.table({"l_id": pairs[0], "r_id": pairs[1]})


def comparison(left: str, symbol: str, right: str) -> Term:
    from benchmarks.nonequi.question import Compare

    return Compare(left, symbol, right)


OURS = [case for case in CASES.values() if case.rows is None]


@pytest.mark.parametrize("name", ["dovetail", "duckdb", "polars"])
@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_answers(case: Case, name: str, tmp_path: Path) -> None:
    kind = find(name)
    if kind.cannot(case):
        pytest.skip(f"{name} {kind.cannot(case)}")
    files = write_tables(case, ROWS, tmp_path)
    expected = answer_of(by_definition(case, *map(pq.read_table, files)), case.question)
    contender = kind(case)
    contender.load(files)
    assert contender.answer(contender.rows()) == expected
    if "count" in case.outputs:
        assert contender.count() == expected.rows
    assert contender.first(50) >= min(50, expected.rows)


def test_the_checksum_sees_a_row_beside_a_wrong_one() -> None:
    question = CASES["overlap"].question
    right = pa.table({"l_id": [1, 2], "r_id": pa.array([5, None], pa.int64())})
    wrong = pa.table({"l_id": [2, 1], "r_id": pa.array([5, None], pa.int64())})
    floats = right.set_column(1, "r_id", pa.array([5.0, float("nan")]))
    assert answer_of(right, question) == answer_of(floats, question) == Answer(2, 2 * 7 + 3 * 1)
    assert answer_of(right, question) != answer_of(wrong, question)
