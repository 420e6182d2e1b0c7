"""Joins as methods of DataFrames, for those who like chains: `orders.dovetail.join(payments, "l.id = r.order_id")`.

`import dovetail` registers them with PySpark, pandas and Polars, whichever is imported before or after it; it imports
none of them. What they return is of the same library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

NAME = "dovetail"


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
        return "<dovetail: join, progressive, count, aggregate, explain and write this DataFrame>"

    def join(self, right: Any, on: Any, how: str = "inner", **options: Any) -> Any:
        """`dovetail.join` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return self._joined(api.join(self._frame, right, on, how, **options), right)

    def progressive(self, right: Any, on: Any, how: str = "inner", **options: Any) -> Iterator[Any]:
        """`dovetail.progressive` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.progressive(self._frame, right, on, how, **options)

    def count(self, right: Any, on: Any, **options: Any) -> int:
        """`dovetail.count` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.count(self._frame, right, on, **options)

    def aggregate(
        self,
        right: Any,
        on: Any,
        aggregates: Mapping[str, str],
        *,
        by: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """`dovetail.aggregate` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return self._aggregated(api.aggregate(self._frame, right, on, aggregates, by=by, **options), right, by)

    def explain(self, right: Any, on: Any, how: str = "inner", **options: Any) -> Any:
        """`dovetail.explain` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.explain(self._frame, right, on, how, **options)

    def write(self, path: Any, mode: str = "error") -> Any:
        """`dovetail.write` of this DataFrame, which is Spark's."""
        from dovetail import api

        return api.write(self._frame, path, mode)

    def _joined(self, result: Any, right: Any) -> Any:
        """The result of a join: the columns of this DataFrame, and those of the other."""
        if not _is_table(result):
            return result
        looks = [look for _, look in (*self._looks(self._frame), *self._looks(right))][: result.num_columns]
        return self._same(result, looks + [None] * (result.num_columns - len(looks)))

    def _aggregated(self, result: Any, right: Any, by: str | Sequence[str] | None) -> Any:
        """Aggregates: the columns that group them, and new ones."""
        if not _is_table(result):
            return result
        looks: list[Any] = [None] * result.num_columns
        sides = {"l.": self._looks(self._frame), "r.": self._looks(right)}
        for number, text in enumerate([by] if isinstance(by, str) else by or ()):
            columns = sides.get(text.strip()[:2].lower(), [*sides["l."], *sides["r."]])
            looks[number] = next((look for name, look in columns if name == result.column_names[number]), None)
        return self._same(result, looks)

    def _looks(self, frame: Any) -> list[tuple[str, Any]]:
        """The names of a DataFrame's columns in the table that is joined, and what they are in its library."""
        if type(frame) is not type(self._frame):
            return []
        if _is_of("polars", frame):
            return list(frame.schema.items())
        if not _is_of("pandas", frame):
            return []
        from dovetail.core.pandas_frames import forms_of

        return [(str(form.label), form) for form in forms_of(frame)]

    def _same(self, result: Any, looks: list[Any]) -> Any:
        """A table as a DataFrame of the same library as this one, its columns as they were there."""
        if _is_of("polars", self._frame):
            made = sys.modules["polars"].from_arrow(result)
            types = zip(made.columns, made.dtypes, looks, strict=True)
            return made.cast({name: look for name, dtype, look in types if look is not None and look != dtype})
        if _is_of("pandas", self._frame):
            from dovetail.core.pandas_frames import frame_of

            return frame_of(result, looks, sys.modules["pandas"])
        return result


def _is_table(result: Any) -> bool:
    """Readers and Spark's DataFrames are no tables of ours. Arrow may not be imported."""
    return type(result).__module__ == "pyarrow.lib" and type(result).__name__ == "Table"


def _is_of(library: str, frame: Any) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(frame, module.DataFrame)


def _extend_pyspark(module: Any) -> None:
    """The class that classic and Connect DataFrames have in common."""
    setattr(module.DataFrame, NAME, property(Joins))


def _extend_pandas(module: Any) -> None:
    module.api.extensions.register_dataframe_accessor(NAME)(Joins)


def _extend_polars(module: Any) -> None:
    module.api.register_dataframe_namespace(NAME)(Joins)


LIBRARIES: dict[str, Callable[[Any], None]] = {
    "pandas": _extend_pandas,
    "polars": _extend_polars,
    "pyspark.sql.dataframe": _extend_pyspark,
}


class _Waiting:
    """A finder of modules that finds nothing by itself: it extends libraries right after they are imported."""

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
            if module.__name__ == name and name in self._names:  # a loader of archives is one for many modules
                self._names.discard(name)
                LIBRARIES[name](module)

        with suppress(AttributeError):  # a loader that is not to be changed
            loader.exec_module = execute_and_extend


def register() -> None:
    """Extend the libraries that are imported already, and the others when they are."""
    missing = set()
    for name, extend in LIBRARIES.items():
        if (module := sys.modules.get(name)) is not None:
            extend(module)
        else:
            missing.add(name)
    sys.meta_path.insert(0, _Waiting(missing))
