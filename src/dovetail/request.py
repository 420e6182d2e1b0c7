"""The arguments of a public call, read and checked once. Options are refused only here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from dovetail.arguments import in_words, refuse_unknown
from dovetail.errors import InputError
from dovetail.options import OPTIONS, PLACES, Option, Where, accepted_by, default_of, options_of

FEWEST = 3  # inputs of a multi-way join
COLLECTED = {"parameters", "others"}
"""Names of the parameters that collect `**` arguments."""
NAMES = {"left", "right", "on", "how", "inputs", "aggregates", *COLLECTED}
"""Arguments that are not options."""
OPTION_NAMES = {row.name for row in OPTIONS}
TYPES: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, Real) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "tuple[str, str]": lambda value: isinstance(value, tuple) and [*map(type, value)] == [str, str],
    "Mapping[str, str]": lambda value: isinstance(value, Mapping),
    **{
        # Compared by name, so that these libraries are not imported.
        name: lambda value, name=name: any(kind.__name__ == name for kind in type(value).__mro__)  # type: ignore[misc]
        for name in ("Retry", "Window", "timedelta")
    },
}
"""Type checks by the type's name in signatures. Options of other types are checked where they are used."""


@dataclass(frozen=True, slots=True)
class PolarsCondition:
    """A Polars expression, and the suffix that it uses for right columns whose names clash with left ones."""

    expression: Any
    suffix: str


@dataclass(frozen=True)
class Request:
    """A call: its inputs, its condition and the given options. Options are attributes: `request.cells`."""

    call: str
    inputs: tuple[Any, ...] | Mapping[str, Any]  # two, or several by name
    on: Any
    how: str = "inner"
    given: Mapping[str, Any] = field(default_factory=dict)  # without defaults
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the named algorithm

    @classmethod
    def read(cls, call: str, arguments: Mapping[str, Any], parameter_names: Callable[[], Iterable[str]]) -> Request:
        """The request of a call with these arguments, which are checked. `explain` makes the request of another
        call.
        """
        if call == "asof":
            arguments = _in_our_words(arguments)
        several = call == "multijoin" or isinstance(arguments["left"], Mapping)
        collected = arguments.get("parameters") or arguments.get("others") or {}
        options = {name: _path_as_text(value) for name, value in arguments.items() if name not in NAMES}
        if collected:
            refuse_unknown(call, collected, {*arguments, *parameter_names(), *accepted_by(call)} - COLLECTED)
            options |= {name: value for name, value in collected.items() if name in accepted_by(call)}
        parameters = {name: value for name, value in collected.items() if name not in options}
        given = {name: value for name, value in options.items() if _asks(accepted_by(call)[name], value)}
        if call == "explain":
            if "of" in given:
                _check_value(accepted_by(call)["of"], given["of"])
            named = given.pop("of", "join")
            call = "progressive" if given.pop("progressive", False) else "multijoin" if several else named
            refuse_unknown(call, given, options_of(call))
        for name, value in given.items():
            _check_value(accepted_by(call)[name], value)
        inputs: tuple[Any, ...] | Mapping[str, Any]
        on, how = arguments["on"], arguments.get("how", "inner")
        if several:
            inputs = named_inputs(arguments.get("inputs", arguments.get("left")))
            on = arguments.get("right") if on is None else on  # the condition may be the second argument
        else:
            inputs = (arguments["left"], arguments["right"])
            on, how = read_condition(on, how, given)
            on = _with_suffix(on, given.get("suffix", default_of("join", "suffix")))
        if on is None:
            raise InputError("there is no condition: give on='id', on=['id', 'day'] or on='l.id = r.id'.")
        if "suffixes" in given and "suffix" in given:
            raise InputError("suffix= and suffixes= mean the same: give one of them.")
        return cls(call, inputs, on, how, given, parameters)

    def __getattr__(self, name: str) -> Any:
        """The value of an option."""
        if name in OPTION_NAMES:
            return self.given[name] if name in self.given else default_of(self.call, name)
        raise AttributeError(f"there is no option called {name!r}.")

    def but(self, **options: Any) -> Request:
        """The same request with other options."""
        return replace(self, given={**self.given, **options})

    @property
    def diagonal(self) -> dict[str, Any]:
        """The options that only Diag-Join has."""
        rows = accepted_by(self.call)
        return {name: value for name, value in self.given.items() if rows[name].algorithm == "diag"}

    @property
    def is_of_several(self) -> bool:
        return isinstance(self.inputs, Mapping)

    @property
    def input_list(self) -> tuple[Any, ...]:
        """The inputs, without their names."""
        return tuple(self.inputs.values()) if isinstance(self.inputs, Mapping) else self.inputs

    @property
    def on_spark(self) -> bool:
        """Whether all inputs are Spark DataFrames. Does not import pyspark."""
        spark = [type(rows).__module__.startswith("pyspark.sql") for rows in self.input_list]
        if any(spark) and not all(spark):
            raise InputError("some inputs are Spark DataFrames and others are not: give all of the same kind.")
        return all(spark)

    def refuse_outside(self, where: Where) -> None:
        """Refuse options that do not apply there."""
        rows, refused, instead = accepted_by(self.call), [], []
        for name in self.given:
            row = rows[name]
            if where not in row.where | row.ignored:
                refused.append(f"{name}= is for {row.purpose}" if row.purpose else f"{name}=")
                instead.append(row.instead)
        algorithm = rows.get("algorithm")
        if algorithm is None or where not in algorithm.where:
            refused += [f"{name}= is for named algorithms" for name in self.parameters]
        if refused:
            _refuse(refused, PLACES[where], instead)
        others = [row for name in self.given if (row := rows[name]).algorithm not in ("", self.algorithm)]
        if others:
            instead = [f"Or give {row.purpose}." for row in others]
            _refuse([f"{row.name}= is for {row.purpose}" for row in others], f"algorithm={self.algorithm!r}", instead)


def _path_as_text(value: Any) -> Any:
    """A pathlib path as its text; everything else as it is."""
    return os.fspath(value) if isinstance(value, PurePath) else value


def read_condition(on: Any, how: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The condition and the join type, if they were given as in other libraries: columns of the left and of the
    right input, or how="cross".
    """
    names = [given.get(name) for name in ("left_on", "right_on")]
    if str(how).lower() == "cross":
        if on is not None or any(name is not None for name in names):
            raise InputError("how='cross' takes no condition: leave it out, or write how='inner'.")
        return "true", "inner"
    if all(name is None for name in names):
        return on, how
    if on is not None:
        raise InputError("left_on= and right_on= are given in place of on=: leave out one or the other.")
    if any(name is None for name in names):
        raise InputError("left_on= and right_on= belong together: give both, or on= for columns of the same name.")
    left, right = (list(name) if isinstance(name, list | tuple) else [name] for name in names)
    if not all(isinstance(name, str) for name in (*left, *right)):
        raise InputError(
            "left_on= and right_on= are names of columns; got "
            f"{' and '.join(_kinds(name) for name in (left, right))}. "
            "Give what is computed as text: on='lower(l.name) = r.name'."
        )
    if len(left) != len(right) or not left:
        raise InputError(
            f"left_on= and right_on= name the same number of columns; got {len(left)} and {len(right)}: {left} and "
            f"{right}."
        )
    return list(zip(left, right, strict=True)), how


def _kinds(names: list[Any]) -> str:
    return ", ".join(repr(name) if isinstance(name, str | int) else type(name).__name__ for name in names)


PAIRS = {("left_on", "right_on"): "on", ("left_by", "right_by"): "by", ("by_left", "by_right"): "by"}
WORDS = {"strategy": "direction", "allow_exact_matches": "exact"}
"""Arguments of as-of joins in pandas and Polars, and their names here."""


def _in_our_words(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of an as-of join, with names from pandas' `merge_asof` and Polars' `join_asof` translated."""
    found, others = dict(arguments), dict(arguments.get("others") or {})
    for names, ours in PAIRS.items():
        given = [others.pop(name, None) for name in names]
        if given == [None, None]:
            continue
        if None in given:
            raise InputError(f"{names[0]}= and {names[1]}= belong together: give both, or {ours}=.")
        if found.get(ours) is not None:
            raise InputError(f"{names[0]}= and {names[1]}= are given in place of {ours}=: leave out one or the other.")
        left, right = (list(name) if isinstance(name, list | tuple) else [name] for name in given)
        if len(left) != len(right) or (ours == "on" and len(left) != 1):
            raise InputError(f"{names[0]}= and {names[1]}= name the same number of columns; got {left} and {right}.")
        pairs = list(zip(left, right, strict=True))
        found[ours] = pairs[0] if ours == "on" else pairs
    for theirs, ours in WORDS.items():
        if theirs in others:
            if found[ours] != default_of("asof", ours):
                raise InputError(f"{theirs}= is {ours}= here: leave out one or the other.")
            found[ours] = others.pop(theirs)
    return {**found, "others": others}


def _with_suffix(on: Any, suffix: str) -> Any:
    """Polars expressions together with the suffix they need to name columns. Everything else as it is."""
    if isinstance(on, list | tuple):
        return type(on)(_with_suffix(item, suffix) for item in on)
    is_polars = type(on).__module__.startswith("polars.") and hasattr(on, "meta")
    return PolarsCondition(on, suffix) if is_polars else on


def named_inputs(inputs: Any) -> Mapping[str, Any]:
    """Several inputs, by names that a condition can use."""
    if not isinstance(inputs, Mapping):
        raise InputError(f"the inputs are a dictionary of names and tables; got {type(inputs).__name__}.")
    if inputs and all(isinstance(table, list | tuple) for table in inputs.values()):
        raise InputError("a dictionary of lists is not a table: give pa.table({…}), or a DataFrame of it.")
    if len(inputs) < FEWEST:
        raise InputError(
            f"a join of several inputs takes {FEWEST} and more; got {len(inputs)}. For two: dovetail.join."
        )
    for alias in inputs:
        if not re.fullmatch(r"[A-Za-z_]\w*", str(alias)):
            raise InputError(f"{alias!r} cannot be the name of an input: use letters, digits and underscores.")
    if len({alias.casefold() for alias in inputs}) < len(inputs):
        raise InputError(f"names of inputs differ in case only: {', '.join(inputs)}.")
    return inputs


def _asks(row: Option, value: Any) -> bool:
    """Whether a value requests something. None does if the option accepts it and it is not the default."""
    if value is None:
        return row.default is not None and "None" in row.type.split(" | ")
    return not any(type(value) is type(one) and value == one for one in (row.default, *row.no_request))


def _check_value(row: Option, value: Any) -> None:
    """Refuse values of the wrong type, too small values, and values that are not among the choices."""
    checks = [TYPES.get(kind) for kind in row.type.split(" | ")]
    is_one = any(check is None or check(value) for check in checks)
    if not is_one or (row.least is not None and value < row.least):
        least = "" if row.least is None else f", {row.least:g} or more"
        example = f", such as {row.example}" if row.example else ""
        wanted = in_words(row.type.removesuffix(" | None"))
        raise InputError(f"{row.name} must be {wanted}{least}{example}; got {value!r}.")
    if row.choices and value not in row.choices:
        raise InputError(f"{row.name} must be one of {', '.join(row.choices)}; got {value!r}.")


def _refuse(refused: list[str], where: str, instead: Iterable[str] = ()) -> None:
    """`cells= is for DataFrames; it means nothing for tables in process. Leave it out.`"""
    it, means = ("it", "means") if len(refused) == 1 else ("they", "mean")
    named = any(" is for " in part for part in refused)
    start = f"{', '.join(refused)}; {it} {means}" if named else f"{', '.join(refused)} {means}"
    them = "it" if len(refused) == 1 else "them"
    advice = " ".join(["", *dict.fromkeys(filter(None, instead))])
    raise InputError(f"{start} nothing for {where}. Leave {them} out.{advice}")
