"""Joins of two complete sides: one matcher per predicate class, on top of the kernels."""

from dovetail.matchers.build import build_matcher, most_selective
from dovetail.matchers.driving import Drive, choose_drive
from dovetail.matchers.kept import Keeping, Kept, Probing
from dovetail.matchers.parts import Parts
from dovetail.matchers.prepare import PLANE_AND_SPACE
from dovetail.matchers.protocol import Matcher

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
