"""One attribute for several inputs to be swept along, and how far each row reaches on it.

    a.x = b.x AND b.x - c.x BETWEEN -2 AND 5

Equalities and bands are bounds of differences: at most so much lies between the values of two inputs, and along the
edges of a graph such bounds add up (shortest paths). A row can only be in results with rows that begin no further
behind it than the largest bound to any other input: it is over when the sweep has passed that place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from dovetail.kernels.band import SINGLE_STEP, code_floats
from dovetail.keys import float_codes
from dovetail.state.several.links import MOST, Attribute, Codes, Link

Number = int | float


class SweepReach:
    def __init__(self, attributes: Mapping[str, Attribute], links: Sequence[Link]) -> None:
        self.attributes = attributes
        self._links = links
        bounds = [abs(bound) for link in links for bound in link.band or ()]
        self._exact = all(isinstance(bound, int) for bound in bounds)
        self._widest = float(sum(bounds)) if not self._exact else 0.0
        self._reaches = _reaches(attributes, links)

    @classmethod
    def along(cls, links: Sequence[Link], aliases: Sequence[str]) -> SweepReach | None:
        """The first attribute that equalities and bands carry through all inputs."""
        usable = [link for link in links if link.is_equality or link.band is not None]
        for start in (link.attribute(aliases[0]) for link in usable if aliases[0] in link.ends):
            found = {aliases[0]: start}
            grows = True
            while grows:
                grows = False
                for link in usable:
                    for mine, other in ((link.left, link.right), (link.right, link.left)):
                        if found.get(mine.alias) == mine and other.alias not in found:
                            found[other.alias] = other
                            grows = True
            if len(found) == len(aliases):
                within = [k for k in usable if found[k.left.alias] == k.left and found[k.right.alias] == k.right]
                return cls(found, within)
        return None

    def ends(self, alias: str, codes: Codes) -> Codes:
        """Where rows of an input are over."""
        reach = self._reaches[alias]
        if reach <= 0 and self._exact:
            return codes
        if self._exact:
            if reach > MOST:
                return np.full_like(codes, MOST)
            return np.where(codes > MOST - int(reach), MOST, codes + np.int64(reach))
        values = code_floats(codes)
        with np.errstate(invalid="ignore", over="ignore"):
            slack = len(self.attributes) * SINGLE_STEP * (np.abs(values) + self._widest)
            ends = float_codes(values + max(0.0, float(reach)) + slack)
        return np.maximum(codes, ends)


def _reaches(attributes: Mapping[str, Attribute], links: Sequence[Link]) -> dict[str, Number]:
    """How far the value of any other input can lie above that of each one, at most."""
    most: dict[tuple[str, str], Number] = {}
    for link in links:
        low, high = link.band or (0, 0)  # of left - right
        for pair, bound in (((link.right.alias, link.left.alias), high), ((link.left.alias, link.right.alias), -low)):
            most[pair] = min(bound, most.get(pair, bound))
    for via, start, end in product(attributes, repeat=3):
        if (start, via) in most and (via, end) in most:
            around = most[start, via] + most[via, end]
            most[start, end] = min(around, most.get((start, end), around))
    return {a: max(bound for (start, end), bound in most.items() if start == a != end) for a in attributes}
