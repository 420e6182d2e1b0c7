"""Renames and selects columns. Names by position (c0, c1, …) stand for names that Spark cannot address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from dovetail.condition import Column

BETWEEN = "\x00"
_splitters: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the gateway of a JVM


def by_position(frame: DataFrame, first: int = 0) -> DataFrame:
    """The same columns, named c0, c1, …, from the first number on."""
    columns = frame.columns
    names = [position_name(first + place) for place in range(len(columns))]
    return frame if names == columns else renamed(frame, names)


def position_name(position: int) -> str:
    return f"c{position}"


def joined_names(left: Sequence[str], right: Sequence[str]) -> Callable[[Column], str]:
    """How Spark addresses a column of either input in joined rows. Right columns come last."""
    names, first = (list(left), list(right)), (0, len(left))
    return lambda column: position_name(first[column.side] + names[column.side].index(column.name))


def renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Like frame.toDF(*names), which calls Java once for each name."""
    texts = _in_java(frame, names)
    return frame.toDF(*names) if texts is None else DataFrame(frame._jdf.toDF(texts), frame.sparkSession)


def selected(frame: DataFrame, texts: Sequence[str]) -> DataFrame:
    """Like frame.selectExpr(*texts), which calls Java once for each text."""
    found = _in_java(frame, texts)
    return frame.selectExpr(*texts) if found is None else DataFrame(frame._jdf.selectExpr(found), frame.sparkSession)


def _in_java(frame: DataFrame, texts: Sequence[str]) -> Any:
    """Texts as an array of Java. None if there is no Java, or if they cannot be told apart."""
    if not hasattr(frame, "_jdf") or not texts or not all(texts) or any(BETWEEN in text for text in texts):
        return None
    gateway: Any = frame.sparkSession.sparkContext._gateway
    if gateway not in _splitters:
        _splitters[gateway] = gateway.jvm.java.util.regex.Pattern.compile(BETWEEN)
    return _splitters[gateway].split(BETWEEN.join(texts))
