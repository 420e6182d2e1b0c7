"""Double pipelined hash join: a symmetric hash join that spills partitions of both sides when memory is full.

    arriving   batch --> probe the other side's partitions in memory --> results
                     \\-> keep; when full, spill partitions of both sides: first those spilled before, then the largest
    reactive   nothing
    cleanup    flush all, then disk x disk, partition by partition

Guarantee: every matching pair exactly once, by the stays of rows in memory. Memory keeps to any budget of at least four
blocks.

Ives, Florescu, Friedman, Levy and Weld, An adaptive query execution system for data integration, SIGMOD 1999, section
4.2.2 (incremental symmetric flush).

Deviations: batches instead of tuples. Rows of a partition that has been spilled are kept until memory is full the next
time, instead of being written at once: until then they are joined with each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dovetail.core.rows import Matches
from dovetail.operators.hashing.parameters import HASH_PARAMETERS
from dovetail.operators.hashing.spilling import SpillingHash
from dovetail.operators.protocol import INNER, TWO, Parameters


class Dphj(SpillingHash):
    name: ClassVar[str] = "dphj"
    inputs: ClassVar[range] = TWO
    spills: ClassVar[bool] = True
    emits_at_arrival: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = False
    join_types: ClassVar[tuple[str, ...]] = INNER
    parameters: ClassVar[Parameters] = HASH_PARAMETERS
    paired: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Any]] = {"flush": "symmetric"}

    def react(self) -> Iterator[Matches]:
        return self._react(lambda: None)
