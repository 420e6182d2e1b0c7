"""Which router sends the rows of windowed streams to cells. Nothing is known of the data when a query starts.

equality             hash of the keys: a row is in one cell
bands, distances     stripes, where there are so many cells that a row skips most of them
anything else        None: every row visits all cells, which take turns keeping them

Left rows are in one cell at most, so that it knows whether they have a partner.
"""

from __future__ import annotations

from dovetail.batch import Side
from dovetail.condition import Band, Condition, Distance, Literal
from dovetail.condition.expression import type_of
from dovetail.condition.render import text_of
from dovetail.condition.types import is_list
from dovetail.matchers import choose_drive
from dovetail.plan import Choice
from dovetail.routers.grid import Window
from dovetail.routers.hash import HashRouter
from dovetail.routers.protocol import Router
from dovetail.routers.stripes import StripeRouter
from dovetail.routing.axes import band_axis, distance_axis

MANY = 8
"""Cells from which on stripes pay: a row visits three at most. Values may be crowded, while turns are always even."""


def window_router(condition: Condition, how: str, cells: int) -> tuple[Router | None, Choice]:
    if condition.equalities:
        why = "equal keys share a cell; the others are told that a row came"
        return HashRouter(condition, cells), Choice("hash", why)
    axis = _axis(condition) if cells >= MANY else None
    if axis is not None:
        why = f"of {text_of(axis.at)}; a right row visits those that can hold its partners, the other cells are told"
        return StripeRouter(condition, axis, cells), Choice("stripes", why)
    if how == "inner":
        why = "cells take turns keeping rows; a row visits all of them to find its partners"
    else:
        why = "left rows in one cell each, which knows whether they have a partner; right rows in all of them"
    return None, Choice("round_robin", why)


def _axis(condition: Condition) -> Window | None:
    for predicate in choose_drive(condition).predicates:
        match predicate:
            case Band():
                return band_axis(predicate, Side.LEFT)
            case Distance(left, radius=Literal()):
                return distance_axis(predicate, Side.LEFT, 0, 0 if is_list(type_of(left[0])) else None)
    return None
