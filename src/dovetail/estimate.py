"""How many results are still to come, with honest bounds."""

from __future__ import annotations

from typing import NamedTuple


class Estimate(NamedTuple):
    """The expected total number of results and its confidence interval."""

    total: float
    low: float
    high: float
    confidence: float
