"""The join algorithms, one per file, by the name that `algorithm=` takes."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from dovetail.errors import InputError
from dovetail.operators.protocol import JoinOperator

REGISTRY = {
    "nested_loop": "dovetail.operators.nested_loop:NestedLoop",
    "shj": "dovetail.operators.shj:Shj",
    "spo": "dovetail.operators.spo:Spo",
}


def operator_class(name: str) -> type[JoinOperator]:
    """The operator of that name."""
    if name not in REGISTRY:
        raise InputError(f"no algorithm is called {name!r}. There are: {', '.join(sorted(REGISTRY))}.")
    module, _, attribute = REGISTRY[name].partition(":")
    return cast(type[JoinOperator], getattr(import_module(module), attribute))
