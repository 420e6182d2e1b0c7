import json

import pytest
from tests.seed import seeded

from dovetail.core.rows import Side
from dovetail.operators.blockwise.block_join import BlockSchedule


@pytest.mark.parametrize("seed", range(200))
def test_every_pair_of_blocks_exactly_once_while_both_sides_grow(seed: int) -> None:
    rng = seeded(seed)
    rectangle = BlockSchedule()
    blocks = {Side.LEFT: rng.randrange(4), Side.RIGHT: rng.randrange(4)}
    done: list[tuple[int, int]] = []
    growing = True
    while True:
        for _ in range(rng.randrange(6) if growing else 10**6):
            step = rectangle.advance(blocks.__getitem__, rng.choice([1, 2, 3]))
            if step is None:
                break
            for outer in step.outer_blocks:
                pair = (outer, step.inner_block)
                done.append(pair if step.outer is Side.LEFT else pair[::-1])
            whole = {(i, j) for i in range(rectangle.joined_left) for j in range(rectangle.joined_right)}
            assert whole <= set(done)  # the finished rectangle
        if not growing:
            break
        rectangle = BlockSchedule.from_json(json.loads(json.dumps(rectangle.to_json())))
        blocks[rng.choice(list(Side))] += rng.randrange(3)
        growing = rng.random() < 0.8
    assert sorted(done) == [(i, j) for i in range(blocks[Side.LEFT]) for j in range(blocks[Side.RIGHT])]
