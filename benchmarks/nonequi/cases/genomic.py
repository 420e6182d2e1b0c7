"""Reads and exons of a genome, with the counts and lengths of the largest data sets published with AIList.

9.9 million reads and 1.2 million exons; 307 million pairs in the published sets. Positions are random: exons lie in
genes, whose share of the genome is chosen to give the same number of pairs.
"""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import intervals
from benchmarks.nonequi.question import Compare, Overlap, Pairs

READS, EXONS = 9_944_559, 1_194_285
CHROMOSOMES = 24
READ, EXON = 100, 300  # mean lengths
COVERED = 15_500_000  # number of positions: pairs = READS * EXONS * (READ + EXON) / COVERED


def generate(rows: int, rng: np.random.Generator) -> Tables:
    count = rows * EXONS // READS
    left, right = (
        intervals(prefix, rng.integers(0, COVERED // CHROMOSOMES, n), rng.geometric(1 / mean, n), rng).append_column(
            f"{prefix}_k", [rng.integers(0, CHROMOSOMES, n)]
        )
        for prefix, n, mean in (("l", rows, READ), ("r", count, EXON))
    )
    return left, right


QUESTION = Pairs((Compare("l_k", "=", "r_k"), Overlap("l_s", "l_e", "r_s", "r_e")))
CASES = [
    Case("genome", "overlap of reads and exons", generate, QUESTION, "the shape of AIList's sets", READS, bin_width=400)
]
