"""XJoin: a symmetric hash join that spills its largest partition and joins memory with disk while sources stall.

    arriving   batch --> probe the other side's partitions in memory --> results
                     \\-> keep; when full, spill the largest partition (of one side only)
    reactive   the largest partition in memory x the other side's partition on disk
    cleanup    flush all, then disk x disk, partition by partition

Guarantee: every matching pair exactly once. Pairs joined in memory are recognised by the residence of their rows, pairs
of the reactive phase by the ticks at which it ran. Memory keeps to any budget of at least four blocks.

Urhan and Franklin, XJoin: a reactively-scheduled pipelined join operator, IEEE Data Eng. Bull. 2000; as described in
Tao et al., RPJ, SIGMOD 2005, section 2.1.

Deviations: batches instead of tuples. Runs are sorted by hash when they are spilled, so that disk x disk is a merge. In
the second duplicate condition, which is printed with the index of another partition, all times of the row's own
partition count. A partition is not joined with the disk again before new rows have arrived that it could match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dovetail.core.rows import Matches, Side
from dovetail.operators.hashing.parameters import HASH_PARAMETERS
from dovetail.operators.hashing.spilling import SpillingHash, Task
from dovetail.operators.protocol import INNER, TWO, Parameters


class XJoin(SpillingHash):
    name: ClassVar[str] = "xjoin"
    inputs: ClassVar[range] = TWO
    spills: ClassVar[bool] = True
    emits_at_arrival: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = False
    join_types: ClassVar[tuple[str, ...]] = INNER
    parameters: ClassVar[Parameters] = HASH_PARAMETERS
    defaults: ClassVar[dict[str, Any]] = {"flush": "largest"}

    def react(self) -> Iterator[Matches]:
        return self._react(self._next_task)

    def _next_task(self) -> Task | None:
        sizes = np.array([side.sizes for side in self._residents])
        sizes[self._ledger.memory_pairs == 0] = 0  # nothing new on either side
        if not sizes.any():
            return None
        side, partition = divmod(int(np.argmax(sizes)), self._partitions)
        return self._meet_disk(Side(side), partition)
