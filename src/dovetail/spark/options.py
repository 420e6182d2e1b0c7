"""What `dovetail.join` takes for Spark besides the arguments of every join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dovetail.errors import InputError


@dataclass(frozen=True, slots=True)
class Options:
    cells: int | None = None  # how many tasks the join is cut into; None: from a sample
    sample: bool = True  # look at the data first: balances cells, splits heavy keys, prunes what cannot match
    state_dir: str | None = None  # streams: where segments are kept; must outlive restarts
    metrics: str = "dovetail"  # streams: the name of our figures in observedMetrics of the query's progress

    @classmethod
    def read(cls, given: dict[str, Any]) -> Options:
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InputError(f"{', '.join(unknown)}: no such option of a join on Spark. There are {known}.")
        options = cls(**given)
        if options.cells is not None and not (type(options.cells) is int and options.cells > 0):
            raise InputError(f"cells must be a positive number; got {options.cells!r}.")
        return options
