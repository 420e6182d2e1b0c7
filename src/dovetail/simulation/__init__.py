"""The laboratory: one operator, a scripted schedule or a simulated clock."""

from typing import TYPE_CHECKING

from dovetail.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from dovetail.simulation.clock import play
    from dovetail.simulation.laboratory import simulate

__all__ = ["play", "simulate"]

__getattr__ = lazy_attributes(__name__, names={"play": "clock", "simulate": "laboratory"})
