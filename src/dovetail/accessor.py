"""Joins as DataFrame methods, for chaining: `orders.dovetail.join(payments, "l.id = r.order_id")`.

`import dovetail` registers them with PySpark, pandas and Polars, whether these are imported before or after it. It
imports none of them. Results are DataFrames of the same library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

NAME = "dovetail"
SOME_ROWS = 1000  # enough to tell types


class Joins:
    """The calls of `dovetail`, with this DataFrame as their left input.

    Example:
        >>> import dovetail, pandas as pd
        >>> orders = pd.DataFrame({"id": [1, 2, 3], "due": [10, 20, 30]})
        >>> payments = pd.DataFrame({"order_id": [1, 3], "paid": [12, 25]})
        >>> orders.dovetail.join(payments, "l.id = r.order_id AND r.paid > l.due").query("due < 20")
           id  due  order_id  paid
        0   1   10         1    12
        >>> orders.dovetail.count(payments, "l.due < r.paid")
        3
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return "<dovetail: join, asof, nearest, progressive, count, aggregate, explain and write this DataFrame>"

    def __getattr__(self, name: str) -> Any:
        """Raise an error for a method that another library has, and name the one to use here."""
        from dovetail.habits import METHODS

        hint = f" Write {METHODS[name]}." if name in METHODS else ""
        raise AttributeError(f"dovetail has no method {name!r}.{hint}", name=name, obj=self)

    def join(self, right: Any, on: Any = None, how: str = "inner", **options: Any) -> Any:
        """`dovetail.join` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        result = api.join(self._frame, right, on, how, **options)
        return self._joined(result, right, on, how, options) if _is_table(result) else result

    def asof(self, right: Any, on: Any = None, how: str = "left", **options: Any) -> Any:
        """`dovetail.asof` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        result = api.asof(self._frame, right, on, how, **options)
        return self._joined(result, right, "true", how, {}) if _is_table(result) else result

    def nearest(self, right: Any, on: Any, how: str = "left", **options: Any) -> Any:
        """`dovetail.nearest` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        result = api.nearest(self._frame, right, on, how, **options)
        return self._joined(result, right, "true", how, {}) if _is_table(result) else result

    def progressive(self, right: Any, on: Any = None, how: str = "inner", **options: Any) -> Iterator[Any]:
        """`dovetail.progressive` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.progressive(self._frame, right, on, how, **options)

    def count(self, right: Any, on: Any = None, **options: Any) -> int:
        """`dovetail.count` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.count(self._frame, right, on, **options)

    def aggregate(
        self,
        right: Any,
        on: Any = None,
        aggregates: Mapping[str, str] | None = None,
        how: str = "inner",
        *,
        by: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """`dovetail.aggregate` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        found = api.aggregate(self._frame, right, on, aggregates, how, by=by, **options)
        if by is None and how != "inner" and _is_table(found):
            return self._joined(found, right, "true", how, {})
        return self._aggregated(found, right, by)

    def explain(self, right: Any, on: Any = None, how: str = "inner", **options: Any) -> Any:
        """`dovetail.explain` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.explain(self._frame, right, on, how, **options)

    def write(self, path: Any, mode: str = "error") -> Any:
        """`dovetail.write` of this DataFrame, which must be a Spark DataFrame."""
        from dovetail import api

        return api.write(self._frame, path, mode)

    def _joined(self, result: Any, right: Any, on: Any, how: str, options: Mapping[str, Any]) -> Any:
        """The result of a join: the columns of this DataFrame and those of the other, with shared columns once."""
        from dovetail.core.join_types import JoinType
        from dovetail.request import read_condition

        on, how = read_condition(on, how, options)
        join_type, sides = JoinType.read(how), (self._looks(self._frame), self._looks(right))
        looks, others = ([look for _, look in side] for side in sides)
        if join_type.only is not None:
            of_left = dict(self._looks(self._frame))
            return self._same(result, [of_left.get(name) for name in result.column_names])
        has_right_keys = join_type in (JoinType.RIGHT, JoinType.FULL)
        if not others and has_right_keys:  # of another library: its columns come from Arrow
            sides = sides[0], [(name, None) for name in _names_of(right)]
        shared = _shared(on, sides)
        for mine, other in shared.items() if has_right_keys else ():
            theirs = others[other] if others else None
            is_one_type = join_type is JoinType.RIGHT or _are_alike(looks[mine], theirs)
            looks[mine] = theirs if is_one_type else None
        looks += [look for number, look in enumerate(others) if number not in shared.values()]
        if options.get("columns") is not None:
            all_names = self._all_columns(right, on, how, options)
            by_name = dict(zip(all_names, looks + [None] * (len(all_names) - len(looks)), strict=True))
            return self._same(result, [by_name[name] for name in result.column_names])
        return self._same(result, looks + [None] * (result.num_columns - len(looks)))

    def _all_columns(self, right: Any, on: Any, how: str, options: Mapping[str, Any]) -> list[str]:
        """The columns that the result would have without `columns=`, found by joining a few rows."""
        from dovetail import api

        naming = {name: value for name, value in options.items() if name in ("suffix", "suffixes", "indicator")}
        few = right if type(right) is not type(self._frame) else right[:SOME_ROWS]
        return list(api.join(self._frame[:SOME_ROWS], few, on, how, limit=0, **naming).column_names)

    def _aggregated(self, result: Any, right: Any, by: str | Sequence[str] | None) -> Any:
        """Aggregates: the grouping columns, and new ones."""
        if not _is_table(result):
            return result
        looks: list[Any] = [None] * result.num_columns
        sides = {"l.": self._looks(self._frame), "r.": self._looks(right)}
        for number, text in enumerate([by] if isinstance(by, str) else by or ()):
            columns = sides.get(text.strip()[:2].lower(), [*sides["l."], *sides["r."]])
            looks[number] = next((look for name, look in columns if name == result.column_names[number]), None)
        return self._same(result, looks)

    def _looks(self, frame: Any) -> list[tuple[str, Any]]:
        """The names of a DataFrame's columns in the table that is joined, with their types in its library."""
        if _is_of("polars", frame) and _is_of("polars", self._frame):
            return list(frame.lazy().collect_schema().items())
        if not _is_of("pandas", frame) or type(frame) is not type(self._frame):
            return []
        from dovetail.core.pandas_frames import forms_of

        return [(str(form.label), form) for form in forms_of(frame)]

    def _same(self, result: Any, looks: list[Any]) -> Any:
        """A table as a DataFrame of the same library as this one, with column types as before."""
        if _is_of("polars", self._frame):
            made = sys.modules["polars"].from_arrow(result)
            types = zip(made.columns, made.dtypes, looks, strict=True)
            made = made.cast({name: look for name, dtype, look in types if look is not None and look != dtype})
            return made if isinstance(self._frame, type(made)) else made.lazy()
        if _is_of("pandas", self._frame):
            from dovetail.core.pandas_frames import frame_of

            return frame_of(result, looks, sys.modules["pandas"])
        return result


def _shared(on: Any, sides: tuple[list[tuple[str, Any]], list[tuple[str, Any]]]) -> dict[int, int]:
    """The columns that the result has once: their positions in the left DataFrame, and in the right one."""
    import pyarrow as pa

    from dovetail.condition import shared_columns

    left, right = (pa.schema([(name, pa.null()) for name, _ in side]) for side in sides)
    return dict(shared_columns(on, (left, right)))


def _names_of(rows: Any) -> list[str]:
    """The columns of an input that is not a DataFrame of the same library."""
    from dovetail.inputs import scan

    return list(scan(rows).schema.names)


def _are_alike(one: Any, other: Any) -> bool:
    """Whether columns had the same type. For pandas, a template knows."""
    return bool(getattr(one, "dtype", one) == getattr(other, "dtype", other))


def _is_table(result: Any) -> bool:
    """Whether the result is a pyarrow table, not a reader or a Spark DataFrame. Arrow may not be imported."""
    return type(result).__module__ == "pyarrow.lib" and type(result).__name__ == "Table"


def _is_of(library: str, frame: Any) -> bool:
    module = sys.modules.get(library)
    kinds = (getattr(module, name, None) for name in ("DataFrame", "LazyFrame"))
    return any(isinstance(kind, type) and isinstance(frame, kind) for kind in kinds)


def _extend_pyspark(module: Any) -> None:
    """Extend the class that classic and Connect DataFrames share."""
    setattr(module.DataFrame, NAME, property(Joins))


def _extend_pandas(module: Any) -> None:
    module.api.extensions.register_dataframe_accessor(NAME)(Joins)


def _extend_polars(module: Any) -> None:
    module.api.register_dataframe_namespace(NAME)(Joins)
    module.api.register_lazyframe_namespace(NAME)(Joins)


LIBRARIES: dict[str, Callable[[Any], None]] = {
    "pandas": _extend_pandas,
    "polars": _extend_polars,
    "pyspark.sql.dataframe": _extend_pyspark,
}


class _Waiting:
    """A module finder that finds nothing itself: it extends libraries right after they are imported."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._names:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            self._extend_after(spec.loader, name)
        return spec

    def _extend_after(self, loader: Any, name: str) -> None:
        execute = loader.exec_module

        def execute_and_extend(module: Any) -> None:
            execute(module)
            if module.__name__ == name and name in self._names:  # an archive's loader serves many modules
                self._names.discard(name)
                LIBRARIES[name](module)

        with suppress(AttributeError):  # a loader whose attributes cannot be set
            loader.exec_module = execute_and_extend


def register() -> None:
    """Extend the libraries that are already imported now, and the others when they are imported."""
    missing = set()
    for name, extend in LIBRARIES.items():
        if (module := sys.modules.get(name)) is not None:
            extend(module)
        else:
            missing.add(name)
    sys.meta_path.insert(0, _Waiting(missing))
