"""Hash-merge join: spills partitions of both sides together, and merges and joins their runs while sources stall.

    arriving   batch --> probe the other side's partitions in memory --> results
                     \\-> keep; when full, spill a pair of partitions, sorted: the k-th runs of both sides
    reactive   for each partition: runs of both sides are merged at once; equal keys of different k are results
    cleanup    flush all, then merge to the end

Guarantee: every matching pair exactly once: rows of the k-th runs were joined in memory, rows of merged runs in the
merge. Memory keeps to any budget of at least four blocks.

Mokbel, Lu and Aref, Hash-merge join: a non-blocking join algorithm for producing fast and early join results, ICDE
2004; as described in Tao et al., RPJ, SIGMOD 2005, section 2.2.

Deviations: batches instead of tuples. Rows are sorted by the hash of the key. The smallest runs are merged first, and
the last merge of the cleanup writes nothing. Papers disagree on when a merge yields to arrivals: `handover` configures
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dovetail.core.rows import Matches
from dovetail.operators.hashing.parameters import HASH_PARAMETERS
from dovetail.operators.hashing.spilling import SpillingHash, Task
from dovetail.operators.protocol import INNER, TWO, Parameters


class Hmj(SpillingHash):
    name: ClassVar[str] = "hmj"
    inputs: ClassVar[range] = TWO
    spills: ClassVar[bool] = True
    emits_at_arrival: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = False
    join_types: ClassVar[tuple[str, ...]] = INNER
    parameters: ClassVar[Parameters] = HASH_PARAMETERS
    defaults: ClassVar[dict[str, Any]] = {"flush": "adaptive"}
    paired: ClassVar[bool] = True

    def react(self) -> Iterator[Matches]:
        return self._react(self._next_task)

    def _next_task(self) -> Task | None:
        open_ = [int(j) for j in np.flatnonzero(self._ledger.disk_pairs) if self._can_merge(int(j))]
        return self._merge_partitions(open_) if open_ else None
