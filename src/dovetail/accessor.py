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

        return self._same(api.join(self._frame, right, on, how, **options))

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

        return self._same(api.aggregate(self._frame, right, on, aggregates, by=by, **options))

    def explain(self, right: Any, on: Any, how: str = "inner", **options: Any) -> Any:
        """`dovetail.explain` of this DataFrame and another; `options` are its other arguments."""
        from dovetail import api

        return api.explain(self._frame, right, on, how, **options)

    def write(self, path: Any, mode: str = "error") -> Any:
        """`dovetail.write` of this DataFrame, which is Spark's."""
        from dovetail import api

        return api.write(self._frame, path, mode)

    def _same(self, result: Any) -> Any:
        """A table in the form that this DataFrame has; readers and Spark's DataFrames as they are."""
        library = type(self._frame).__module__.partition(".")[0]
        if type(result).__module__ != "pyarrow.lib" or type(result).__name__ != "Table":
            return result
        if library == "polars":
            return sys.modules["polars"].from_arrow(result)
        return result.to_pandas() if library == "pandas" else result


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
