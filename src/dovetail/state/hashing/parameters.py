"""The parameters of the hash joins that spill, with the values that RPJ's and HMJ's papers do not print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from dovetail.errors import InputError

HANDOVERS = ("merge", "bucket", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashParameters:
    flush: str  # a policy of state/hashing/flushing.py
    partitions: int | None = None  # None: 20, or fewer where memory is small
    n_flush: float | None = 0.0  # share of the resident rows that a flush lets go at least; None: RPJ's own choice
    handover: str = "merge"  # what reactive work finishes before arrivals are taken: a merge, a partition, everything
    fan_in: int = 10  # matches of runs that a reactive merge takes at once, at most
    acceptable: int | None = None  # a and b of HMJ's adaptive flush
    tolerance: float = 0.25
    tasks: str = "md dd"  # what RPJ does while sources stall: memory with disk, disk with disk
    decay: float = 0.5  # lambda of RPJ's arrival rates
    unit_rows: int = 1000  # arrivals that make a unit of time
    random_cost: float = 10.0  # of a page, for RPJ's choice of a task
    sequential_cost: float = 1.0
    domain: int | None = None  # how many different keys there are; None: sketched
    shed: bool = False  # rows that would leave for disk are dropped, and what is missed for it is counted
    passes: str = "runs"  # what RPJ's number of merge passes is computed from: runs, or pages as printed

    @property
    def sketched(self) -> bool:
        return self.domain is None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> HashParameters:
        """What was given; whatever is wrong with it is said at once."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(f"{', '.join(unknown)}: no such parameter. There are {', '.join(known)}.")
        parameters = cls(**given)
        if parameters.handover not in HANDOVERS:
            raise InputError(f"handover must be one of {', '.join(HANDOVERS)}; got {parameters.handover!r}.")
        if parameters.passes not in ("runs", "pages"):
            raise InputError(f"passes must be runs or pages; got {parameters.passes!r}.")
        if not parameters.tasks.split() or not set(parameters.tasks.split()) <= {"md", "dd"}:
            raise InputError(f"tasks must name md, dd or both, such as 'md dd'; got {parameters.tasks!r}.")
        least = {"partitions": 1, "fan_in": 2, "unit_rows": 1}
        for name, fewest in least.items():
            value = getattr(parameters, name)
            if value is not None and value < fewest:
                raise InputError(f"{name} must be at least {fewest}; got {value}.")
        if not (0 <= (parameters.n_flush or 0) <= 1 and 0 <= parameters.decay <= 1):
            raise InputError("n_flush and decay are shares: they must lie between 0 and 1.")
        return parameters


HASH_PARAMETERS: Mapping[str, Any] = get_type_hints(HashParameters)
"""Their names and types."""
