"""All errors that Dovetail raises on purpose. A message says what is wrong, what we got and what to do."""

from __future__ import annotations

from dovetail.visible import visible


class DovetailError(Exception):
    """Base class of all Dovetail errors. Escape sequences in names and values are written out.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> try:
        ...     dovetail.join(pa.table({"id": [1]}), pa.table({"id": [1]}), "l.idd = r.id")
        ... except dovetail.DovetailError as error:
        ...     print(type(error).__name__)
        ConditionError
    """

    def __str__(self) -> str:
        return visible(super().__str__())


class ConditionError(DovetailError):
    """The condition cannot be read, names an unknown column, or compares incompatible types."""


class InputError(DovetailError):
    """An argument, a file or a directory is not what the call needs."""


class ArgumentError(InputError, TypeError):
    """A call has no argument of that name."""


class PlanError(DovetailError):
    """The chosen algorithm cannot run this join."""


class BudgetError(DovetailError):
    """The memory budget is too small for the join."""


class StateError(DovetailError):
    """Join state on disk is missing or damaged."""


class SourceError(DovetailError):
    """A source failed and could not be resumed."""


class WorkerError(DovetailError):
    """The Python workers of a Spark session cannot run the join's tasks."""
