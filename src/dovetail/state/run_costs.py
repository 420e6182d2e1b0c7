"""How large sorted runs should grow: what merging and probing them has cost so far.

    large runs     few to probe, but a row is merged again each time its run doubles
    small runs     the other way round

With b rows per batch, w rows in the window and runs of up to d rows, a batch costs about

    b log2(d / b) merge_row  +  (w / d + log2(d / b)) probe_run

where merge_row and probe_run are measured, the older the less they count. The best d is a slide, or a half, a quarter …
of it. A choice changes how much is done, never what is found.

After SPO-Join, section 3.3, which leaves the merge threshold to the user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 0.98  # of what was measured before, at each measurement
MOST_CUTS = 10  # the smallest run is a slide / 2^10
CONFIDENT = 16  # runs that must have been probed, before they say anything


@dataclass(slots=True)
class RunCosts:
    """Sums of the past, and the seconds since this was made."""

    merged_rows: float = 0.0
    merging: float = 0.0  # seconds
    probed_runs: float = 0.0
    probing: float = 0.0
    merge_seconds: float = 0.0
    probe_seconds: float = 0.0

    def to_json(self) -> list[float]:
        return [self.merged_rows, self.merging, self.probed_runs, self.probing]

    def remember(self, sums: list[float]) -> None:
        """What `to_json` gave before."""
        self.merged_rows, self.merging, self.probed_runs, self.probing = sums

    def merged(self, rows: int, seconds: float) -> None:
        self.merged_rows = MEMORY * self.merged_rows + rows
        self.merging = MEMORY * self.merging + seconds
        self.merge_seconds += seconds

    def probed(self, runs: int, seconds: float) -> None:
        self.probed_runs = MEMORY * self.probed_runs + runs
        self.probing = MEMORY * self.probing + seconds
        self.probe_seconds += seconds

    def cuts(self, batch_rows: int, slide_rows: int, window_rows: int) -> int:
        """How often a slide should be halved."""
        if self.probed_runs < CONFIDENT or self.merged_rows < 1 or slide_rows <= batch_rows:
            return 0
        merge_row, probe_run = self.merging / self.merged_rows, self.probing / self.probed_runs

        def cost(cuts: int) -> float:
            size = slide_rows / (1 << cuts)
            merges = math.log2(size / batch_rows)
            merging, probing = batch_rows * merges * merge_row, (window_rows / size + merges) * probe_run
            return merging + probing

        possible = min(MOST_CUTS, int(math.log2(slide_rows / max(1, batch_rows))))
        return min(range(possible + 1), key=cost)
