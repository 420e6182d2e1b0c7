"""The join algorithms by their `algorithm=` names, and their capabilities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from dovetail.arguments import nearest
from dovetail.condition.graph import Graph
from dovetail.errors import InputError, PlanError
from dovetail.operators.protocol import JoinOperator, OperatorSpec

REGISTRY = {
    "adaptive": ("dovetail.operators.adaptive:Adaptive",),
    "diner": ("dovetail.operators.diner.diner:Diner",),
    "diner_merge": ("dovetail.operators.diner_merge:DinerMerge",),
    "dphj": ("dovetail.operators.hashing.spilling_joins:Dphj",),
    "hmj": ("dovetail.operators.hashing.spilling_joins:Hmj",),
    "miner": ("dovetail.operators.multiway.miner:Miner",),
    "mjoin": ("dovetail.operators.multiway.mjoin:Mjoin",),
    "nested_loop": ("dovetail.operators.nested_loop:NestedLoop",),
    "pmj": ("dovetail.operators.pmj.pmj:Pmj", "dovetail.operators.pmj.multiway:MultiPmj"),
    "rpj": ("dovetail.operators.hashing.spilling_joins:Rpj",),
    "shj": ("dovetail.operators.hashing.shj:Shj",),
    "spo": ("dovetail.operators.spo.spo:Spo",),
    "xjoin": ("dovetail.operators.hashing.spilling_joins:XJoin",),
}
"""The class of each algorithm. An algorithm with separate code for two and for more inputs has two classes."""

TWO = 2


RENAMED = {"rpj_dd": ("rpj", {"tasks": "dd"}), "rpj_md": ("rpj", {"tasks": "md"})}
"""Former names: their current names and parameters."""


def present_name(name: str, parameters: Mapping[str, Any], *, warn: bool = False) -> tuple[str, dict[str, Any]]:
    """The current name and parameters of an algorithm, which may have a former name."""
    if name not in RENAMED:
        return name, dict(parameters)
    now, also = RENAMED[name]
    if warn:
        said = ", ".join([f"algorithm={now!r}", *(f"{parameter}={value!r}" for parameter, value in also.items())])
        warnings.warn(f"algorithm={name!r} is a former name: write {said}.", FutureWarning, stacklevel=3)
    return now, {**also, **parameters}


def operator_class(name: str, inputs: int = TWO, also: tuple[str, ...] = ()) -> type[JoinOperator]:
    """The operator of that name for a number of inputs. `also`: other names that may have been meant."""
    if name == "diag":
        raise InputError("diag joins tables and Parquet files in process: it pulls its inputs and has no operator.")
    if (kind := find_operator(name, inputs)) is not None:
        return kind
    several = "" if inputs == TWO else f" for {inputs} inputs"
    names = [*also, *operator_names(inputs)]
    meant = nearest(str(name), names)
    hint = f"Did you mean {meant!r}? " if meant else ""
    raise InputError(f"no algorithm{several} is called {name!r}. {hint}There are: {', '.join(names)}.")


def find_operator(name: str, inputs: int) -> type[JoinOperator] | None:
    """The operator of that name, if it supports that number of inputs."""
    kinds = _classes(name) if name in REGISTRY else []
    return next((kind for kind in kinds if inputs in kind.spec.inputs), None)


def operator_names(inputs: int = TWO) -> list[str]:
    """The algorithms for a number of inputs."""
    return sorted(name for name in REGISTRY if find_operator(name, inputs) is not None)


def operator_spec(name: str, inputs: int = TWO) -> OperatorSpec:
    """The capabilities of the operator of that name for a number of inputs."""
    return operator_class(name, inputs).spec


def parameter_names() -> set[str]:
    """The parameters of all algorithms."""
    return {parameter for name in REGISTRY for kind in _classes(name) for parameter in kind.spec.parameters}


def operator_for(name: str, graph: Graph, also: tuple[str, ...] = ()) -> type[JoinOperator]:
    """The operator of that name, unless it does not support the condition."""
    kind = operator_class(name, len(graph.aliases), also)
    if (reason := kind.refuses(graph)) is not None:
        raise PlanError(f"algorithm={name!r} cannot run {graph.text}: {reason}.")
    return kind


def _classes(name: str) -> list[type[JoinOperator]]:
    found = []
    for place in REGISTRY[name]:
        module, _, attribute = place.partition(":")
        found.append(cast(type[JoinOperator], getattr(import_module(module), attribute)))
    return found


def check_join_type(name: str, how: str, inputs: int = TWO) -> None:
    """Refuse a join type that the operator does not support."""
    known = operator_spec(name, inputs).join_types
    if how not in known:
        others = [other for other in operator_names(inputs) if how in operator_spec(other, inputs).join_types]
        instead = f"; {' and '.join(others)} support it, for arriving inputs" if others else ""
        raise PlanError(
            f"how={how!r}: algorithm={name!r} supports {', '.join(known)} joins only{instead}. For tables "
            "at rest, algorithm='auto' supports every join type."
        )
