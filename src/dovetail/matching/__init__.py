"""Joins of two complete sides: one matcher per predicate class, on top of the kernels."""

from dovetail.matching.kernel_pairs import Matcher
from dovetail.matching.matcher import Parts, build_matcher, most_selective
from dovetail.matching.preparation import PLANE_AND_SPACE
from dovetail.matching.strategy import Drive, choose_drive
from dovetail.operators.spo.sorted_part import Keeping, Kept, Probing

__all__ = [
    "PLANE_AND_SPACE",
    "Drive",
    "Keeping",
    "Kept",
    "Matcher",
    "Parts",
    "Probing",
    "build_matcher",
    "choose_drive",
    "most_selective",
]
