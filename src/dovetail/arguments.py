"""Argument errors: unknown names with the one that was probably meant, and types in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dovetail.errors import ArgumentError
from dovetail.habits import ARGUMENTS

P = ParamSpec("P")
R = TypeVar("R")
NEAR = 0.7  # how similar two names must be, from 0 to 1
TYPE_WORDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "True or False"}
"""Types in error messages."""


def check_names(call: Callable[P, R]) -> Callable[P, R]:
    """The same call, whose error for an unknown argument suggests a similar name."""
    known = argument_names(call)

    @wraps(call)
    def checked(*positional: P.args, **named: P.kwargs) -> R:
        refuse_unknown(call.__name__, named, known)
        return call(*positional, **named)

    return checked


def refuse_unknown(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that the call does not know."""
    names = set(known)
    for name in given:
        if name not in names:
            meant = nearest(name, names)
            hint = f"Did you mean {meant!r}?" if meant else f"help(dovetail.{call}) lists its arguments."
            if name in ARGUMENTS:
                hint = f"{ARGUMENTS[name]}."
            raise ArgumentError(f"dovetail.{call} has no argument {name!r}. {hint}")


def argument_names(call: Callable[..., Any]) -> set[str]:
    """The names of a call's arguments, without those that `**` collects."""
    collected = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name for name, given in inspect.signature(call).parameters.items() if given.kind not in collected}


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: a similar one, or one with the same letters in another order."""
    from difflib import get_close_matches

    names = list(names)
    for other in sorted(names):
        if sorted(other) == sorted(name):
            return other
    return next(iter(get_close_matches(name, sorted(names), n=1, cutoff=NEAR)), None)


def in_words(annotation: object) -> str:
    """What a value must be, by its annotation: "a number or None"."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return " or ".join(TYPE_WORDS.get(kind, kind) for kind in text.split(" | "))
