import pytest

from dovetail.core.metrics import Counters
from dovetail.errors import BudgetError, InputError
from dovetail.storage.budget import Budget, Shares, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [(5, 5), ("7", 7), ("256MB", 256_000_000), ("1.5 GiB", 3 * 2**29), ("64k", 64_000), ("2mib", 2**21), ("9 B", 9)],
)
def test_amounts_as_people_write_them(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-5", "1.2.3MB", "5 i", "5 ib", 0, -1, "0", 1.5, True])
def test_nonsense_is_refused(text: object) -> None:
    with pytest.raises(InputError, match="memory must be"):
        parse_bytes(text)  # type: ignore[arg-type]


def test_everything_held_counts_together() -> None:
    counters = Counters()
    budget = Budget(100, "bytes", counters)
    budget.hold("residents", 3, 60)
    budget.hold("buffer", 1, 40)
    budget.hold("residents", 2, 30)  # replaces the previous amount
    assert budget.used == 70
    budget.release("buffer")
    assert (budget.used, counters.peak_bytes_in_memory, counters.peak_rows_in_memory) == (30, 100, 4)
    with pytest.raises(BudgetError, match=r"100 bytes is exceeded: 101 are needed \(residents 30, loaded 71\)"):
        budget.hold("loaded", 1, 71)


@pytest.mark.parametrize("limit", [65_536, 100_000, 2**20, 10**9])
def test_the_shares_of_a_budget_fit_in_it(limit: int) -> None:
    shares = Shares(Budget(limit), block_rows=1)
    whole = max(limit // 16, 16 * 1024)
    assert shares.block < whole
    assert shares.residents >= whole
    assert shares.residents + (shares.outer_blocks + 2) * whole <= limit


def test_fewer_than_four_blocks_are_refused() -> None:
    with pytest.raises(BudgetError, match="Give 65,536 bytes or more"):
        Shares(Budget(65_535), block_rows=1)


def test_it_is_looked_at_the_process_while_memory_moves() -> None:
    looks: list[int] = []
    budget = Budget(1000, look=lambda: looks.append(budget.used))
    budget.hold("rows", 1, 10)
    assert not looks
    for size in (100, 10, 100):
        budget.hold("rows", 1, size)
    assert looks == [100, 10, 100]
    budget.look()
    assert len(looks) == 4
