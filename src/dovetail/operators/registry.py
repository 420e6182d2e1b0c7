"""The join algorithms, one per file, by the name that `algorithm=` takes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from dovetail.errors import InputError, PlanError
from dovetail.operators.multi import MultiOperator
from dovetail.operators.protocol import JoinOperator

REGISTRY = {
    "diner": "dovetail.operators.diner.diner:Diner",
    "dphj": "dovetail.operators.hashing.dphj:Dphj",
    "hmj": "dovetail.operators.hashing.hmj:Hmj",
    "nested_loop": "dovetail.operators.nested_loop:NestedLoop",
    "pmj": "dovetail.operators.pmj.pmj:Pmj",
    "rpj": "dovetail.operators.hashing.rpj:Rpj",
    "rpj_dd": "dovetail.operators.hashing.rpj:RpjDd",
    "rpj_md": "dovetail.operators.hashing.rpj:RpjMd",
    "shj": "dovetail.operators.hashing.shj:Shj",
    "spo": "dovetail.operators.spo.spo:Spo",
    "xjoin": "dovetail.operators.hashing.xjoin:XJoin",
}

MULTI_REGISTRY = {
    "miner": "dovetail.operators.multiway.miner:Miner",
    "mjoin": "dovetail.operators.multiway.mjoin:Mjoin",
    "pmj": "dovetail.operators.pmj.multiway:MultiPmj",
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


def check_join_type(name: str, how: str) -> None:
    """Refuse a join type that the operator does not have."""
    known = operator_class(name).join_types
    if how not in known:
        others = [other for other in REGISTRY if how in operator_class(other).join_types]
        instead = f"; {' and '.join(others)} can, for inputs as they come" if others else ""
        raise PlanError(
            f"how={how!r}: algorithm={name!r} gives {', '.join(known)} joins only{instead}. "
            "Tables at rest are joined in every way by algorithm='auto'."
        )


def check_parameters(kind: type[JoinOperator] | type[MultiOperator], given: Mapping[str, Any]) -> None:
    """Refuse parameters that the operator does not have, and values of another type."""
    known = kind.parameters
    unknown = [name for name in given if name not in known]
    if unknown:
        there = f"There are {', '.join(known)}." if known else "There are none."
        raise InputError(f"{', '.join(unknown)}: not a parameter of algorithm={kind.name!r}. {there}")
    for name, value in given.items():
        wanted = known[name]
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        good = is_whole if wanted is int else isinstance(value, wanted) or (is_whole and isinstance(1.0, wanted))
        if not good:
            raise InputError(f"{name} must be {getattr(wanted, '__name__', wanted)}; got {value!r}.")
