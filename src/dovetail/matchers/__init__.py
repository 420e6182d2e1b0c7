"""Joins of two complete sides: one matcher per predicate class, on top of the kernels."""

from dovetail.matchers.build import build_matcher
from dovetail.matchers.driving import Drive, choose_drive
from dovetail.matchers.kept import Kept, Probing, keep, keeping_drive, kept_again, orders_of
from dovetail.matchers.parts import Parts
from dovetail.matchers.prepare import PLANE_AND_SPACE
from dovetail.matchers.protocol import Matcher

__all__ = [
    "PLANE_AND_SPACE",
    "Drive",
    "Kept",
    "Matcher",
    "Parts",
    "Probing",
    "build_matcher",
    "choose_drive",
    "keep",
    "keeping_drive",
    "kept_again",
    "orders_of",
]
