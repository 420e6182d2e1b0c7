"""The odometer over blocks of several inputs: each combination once, for any interruptions."""

import json
from itertools import product

import pytest
from tests.seed import seeded

from dovetail.operators.multiway.spilled_blocks import BlockOdometer, Cell, OdometerStep


def combinations(cell: Cell) -> set[tuple[int, ...]]:
    return set(product(*cell.blocks))


@pytest.mark.parametrize("seed", range(60))
def test_every_combination_of_blocks_is_joined_once(seed: int) -> None:
    """Inputs grow, batches are interrupted, and the state is converted to JSON; the box invariant always holds."""
    rng = seeded(seed)
    inputs = rng.choice([2, 3, 3, 4])
    blocks = [rng.choice([0, 1, 2]) for _ in range(inputs)]
    box, done = BlockOdometer(), set[tuple[int, ...]]()

    def turn(outer: int) -> OdometerStep:
        order = [i for i in range(inputs) if i != outer]
        rng.shuffle(order)
        return OdometerStep(tuple(order), tuple(rng.choice([1, 2, 3]) for _ in range(inputs)))

    def go(steps: int) -> bool:
        nonlocal box
        for _ in range(steps):
            cell = box.advance(blocks, turn)
            if cell is None:
                return False
            cell = Cell.from_json(json.loads(json.dumps(cell.to_json())))
            assert not combinations(cell) & done
            done.update(combinations(cell))
            box = BlockOdometer.from_json(json.loads(json.dumps(box.to_json())))
            inside = set(product(*(range(joined) for joined in box.joined)))
            assert inside <= done
            outside = done - inside
            reach = range(box.joined[box.outer], box.joined[box.outer] + (box.loads[box.outer] if box.places else 0))
            assert all(c[box.outer] in reach for c in outside)
            assert all(c[i] < box.joined[i] for c in outside for i in range(inputs) if i != box.outer)
        return True

    for _ in range(6):
        go(rng.randrange(6))
        grown = rng.randrange(inputs)
        blocks[grown] += rng.choice([0, 1, 2])
    while go(1):
        pass
    assert done == set(product(*(range(count) for count in blocks)))


def test_what_surely_finds_nothing_is_left_out() -> None:
    blocks = [1, 3, 4]
    box = BlockOdometer()
    seen = []
    while (cell := box.advance(blocks, lambda outer: OdometerStep((1, 2), (1, 1, 1)))) is not None:
        seen.append(tuple(r.start for r in cell.blocks))
        if cell.blocks[1].start == 1:
            box.skip(cell, 1)  # the second input found nothing
            box.skip(cell, 1)  # calling it twice has no effect
    assert seen == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 0), (0, 2, 0), (0, 2, 1), (0, 2, 2), (0, 2, 3)]
