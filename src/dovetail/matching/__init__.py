"""Joins of two complete sides: one matcher per predicate class, on top of the kernels."""

from dovetail.matching.kernel_pairs import Matcher
from dovetail.matching.matcher import Parts, build_matcher, most_selective
from dovetail.matching.preparation import PLANE_AND_SPACE

__all__ = [
    "PLANE_AND_SPACE",
    "Matcher",
    "Parts",
    "build_matcher",
    "most_selective",
]
