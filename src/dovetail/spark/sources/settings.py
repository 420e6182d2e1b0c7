"""The options of a remote format, as Spark hands them over: text, in any case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dovetail.errors import InputError
from dovetail.sources.reader import Retry

USUAL = Retry(tries=20)  # for more than a minute
MAX_ROWS = 100_000

T = TypeVar("T")

COMMON = ("maxRowsPerTrigger", "end", "tries", "firstPauseMs", "longestPauseMs")


@dataclass(frozen=True, slots=True)
class Settings:
    """What all remote formats can be told."""

    most_rows: int  # of a micro-batch
    marks_end: bool  # a last row that says so, in a column of its own
    retry: Retry

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Settings:
        return cls(
            number(given, "maxRowsPerTrigger", MAX_ROWS),
            flag(given, "end"),
            Retry(
                number(given, "tries", USUAL.tries),
                number(given, "firstPauseMs", int(USUAL.first_pause_ms)),
                number(given, "longestPauseMs", int(USUAL.longest_pause_ms)),
            ),
        )


def check_names(given: Mapping[str, str], known: tuple[str, ...], prefix: str = "") -> None:
    """Refuse options that nobody knows; those that begin with the prefix are somebody's."""
    lower = {name.lower() for name in known}
    unknown = sorted(name for name in given if name.lower() not in lower and not (prefix and name.startswith(prefix)))
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no such option. There are {', '.join(known)}.")


def text(given: Mapping[str, str], name: str, example: str) -> str:
    if not given.get(name):
        raise InputError(f'the option {name} is missing: .option("{name}", "{example}").')
    return given[name]


def number(given: Mapping[str, str], name: str, default: int) -> int:
    return _read(given, name, default, int, "a positive number", lambda value: value > 0)


def seconds(given: Mapping[str, str], name: str) -> float | None:
    return _read(given, name, None, float, "a positive number", lambda value: value is not None and value > 0)


def flag(given: Mapping[str, str], name: str) -> bool:
    return _read(given, name, False, lambda word: {"true": True, "false": False}[word.lower()], "true or false")


def _read(
    given: Mapping[str, str],
    name: str,
    default: T,
    read: Callable[[str], T],
    wanted: str,
    fits: Callable[[T], bool] = lambda _: True,
) -> T:
    if name not in given:
        return default
    try:
        value = read(given[name])
    except (ValueError, KeyError):
        pass
    else:
        if fits(value):
            return value
    raise InputError(f"{name} must be {wanted}; got {given[name]!r}.")
