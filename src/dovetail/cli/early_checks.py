"""Checks that report an invalid request within a second: files, columns, the condition, the output path.

They import neither Numba nor operators, which a plan needs, and run before Spark starts. The rest of a request is
checked when it is planned (request.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.core.file_formats import format_of, input_path
from dovetail.core.join_types import JoinType
from dovetail.errors import InputError
from dovetail.storage.budget import bytes_of

if TYPE_CHECKING:
    from dovetail.condition import Condition

REMOTE = re.compile(r"grpc(\+\w+)?:", re.IGNORECASE)
EXAMPLE = 'dovetail join a.csv b.csv "l.x < r.y"'


class Asked(NamedTuple):
    """Two inputs and a condition."""

    left: str
    right: str
    on: str

    @classmethod
    def read(cls, words: Sequence[str], left: str | None, right: str | None, on: str | None) -> Asked:
        """Take inputs and condition from options; positional words fill the remaining places in this order."""
        given = {"left input": left, "right input": right, "condition": on}
        free = [name for name, value in given.items() if value is None]
        if len(words) > len(free):
            extra = " ".join(words[len(free) :])
            if "condition" in free:
                meant = " ".join(words[len(free) - 1 :])
                raise InputError(f'the condition is one argument, in quotes: "{meant}".')
            raise InputError(f"unexpected argument {extra!r}: both inputs and the condition are already given.")
        given |= dict(zip(free, words, strict=False))
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise InputError(f"there is no {' and no '.join(missing)}. For example: {EXAMPLE}")
        return cls(*(value for value in given.values() if value is not None))

    @property
    def places(self) -> tuple[str, str]:
        return (self.left, self.right)


def any_remote(*places: str) -> bool:
    """Whether any of the inputs is a dataset on a Flight server."""
    return any(REMOTE.match(place) for place in places)


def check_early(asked: Asked, how: str, memory: str | None, *, in_process: bool | None) -> Condition | None:
    """Raise the first error in the request, with the cheapest checks first. Returns the condition; None if an input is
    remote.

    `in_process` is None while it is undecided: the condition may then call functions that only Spark can evaluate.
    """
    JoinType.read(how)
    bytes_of(memory)
    local = [input_path(place) for place in asked.places if not any_remote(place)]
    formats = [format_of(path) for path in local]
    if in_process is False and "arrow" in formats:
        path = local[formats.index("arrow")]
        raise InputError(f"{path}: Spark does not read Arrow files. Join it in process, or write it as Parquet.")
    if len(local) < len(asked.places):
        return None
    from dovetail.condition import parse
    from dovetail.core.tables import dataset_of, plain_schema

    left, right = (plain_schema(dataset_of(path).schema) for path in local)
    return parse(asked.on, left, right, in_process=in_process is True)
