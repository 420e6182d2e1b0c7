"""DINER with merged runs: DINER decides which rows stay, and what was evicted is joined by merging sorted runs.

    arriving   as diner: residents are kept by the results of their values
    reactive   evicted rows are sorted runs, merged the smallest first (merged_runs.py), instead of block nested loops
    cleanup    evict all residents, then merge all runs

Guarantee: every matching pair exactly once. A pair whose rows were in memory together was joined there (the residence
rule); any other is found by the merge that brings its two runs together.

After Bornea et al., TKDE 2010 (residence) and Dittrich et al., VLDB 2002 (merging); neither paper has the combination.
"""

from __future__ import annotations

from typing import ClassVar

from dovetail.condition.graph import Graph
from dovetail.operators.diner.blocks import SpilledRows
from dovetail.operators.diner.diner import Diner
from dovetail.operators.diner_merge.merged_runs import MergedRuns
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.protocol import Approach, Parameters, Workspace


class DinerMerge(Diner):
    name: ClassVar[str] = "diner_merge"
    parameters: ClassVar[Parameters] = {
        "regions": int,
        "middle": str,
        "ties": str,
        "counted": bool,
        "ageing": bool,
        "fan_in": int,
    }

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        return Diner.refuses(graph) or Pmj.refuses(graph)

    @staticmethod
    def approach(graph: Graph) -> Approach:
        text, driving = Diner.approach(graph)
        return Approach(f"{text}, and merges them in sorted runs", driving)

    def _make_spilled(self, workspace: Workspace) -> SpilledRows:
        return MergedRuns(workspace)
