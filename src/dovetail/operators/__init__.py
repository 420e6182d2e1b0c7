"""The join algorithms, one per file, by the name that `algorithm=` takes."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from dovetail.errors import InputError
from dovetail.operators.multi import MultiOperator
from dovetail.operators.protocol import JoinOperator

REGISTRY = {
    "diner": "dovetail.operators.diner:Diner",
    "dphj": "dovetail.operators.dphj:Dphj",
    "hmj": "dovetail.operators.hmj:Hmj",
    "nested_loop": "dovetail.operators.nested_loop:NestedLoop",
    "pmj": "dovetail.operators.pmj:Pmj",
    "rpj": "dovetail.operators.rpj:Rpj",
    "rpj_dd": "dovetail.operators.rpj:RpjDd",
    "rpj_md": "dovetail.operators.rpj:RpjMd",
    "shj": "dovetail.operators.shj:Shj",
    "spo": "dovetail.operators.spo:Spo",
    "xjoin": "dovetail.operators.xjoin:XJoin",
}

MULTI_REGISTRY = {
    "miner": "dovetail.operators.miner:Miner",
    "mjoin": "dovetail.operators.mjoin:Mjoin",
}
"""Algorithms for several inputs."""


def operator_class(name: str) -> type[JoinOperator]:
    """The operator of that name."""
    if name == "diag":  # runtimes/diagonal
        raise InputError("diag joins tables and Parquet files in process: it reads both at a pace of its own.")
    if name not in REGISTRY:
        raise InputError(f"no algorithm is called {name!r}. There are: {', '.join(sorted(REGISTRY))}.")
    module, _, attribute = REGISTRY[name].partition(":")
    return cast(type[JoinOperator], getattr(import_module(module), attribute))


def multi_operator_class(name: str) -> type[MultiOperator]:
    """The operator of several inputs of that name."""
    if name not in MULTI_REGISTRY:
        raise InputError(
            f"no algorithm for several inputs is called {name!r}. There are: {', '.join(sorted(MULTI_REGISTRY))}."
        )
    module, _, attribute = MULTI_REGISTRY[name].partition(":")
    return cast(type[MultiOperator], getattr(import_module(module), attribute))
