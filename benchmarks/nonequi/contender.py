"""The interface of contenders. Their modules can be imported even if their packages are not installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyarrow as pa

from benchmarks.nonequi.answer import Answer, answer_of
from benchmarks.nonequi.case import Case, Files


class Contender(ABC):
    title: ClassVar[str]
    environment: ClassVar[str] = "tables"
    """The virtual environment with its packages."""
    packages: ClassVar[tuple[str, ...]]
    """The distributions whose versions are recorded, the contender itself first."""
    needs: ClassVar[str] = "`make bench-nonequi` installs it"
    """How to install it."""
    first_by: ClassVar[str]
    """How the first rows are requested."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @classmethod
    @abstractmethod
    def cannot(cls, case: Case) -> str | None:
        """The reason why it cannot run this case; None if it can."""

    @abstractmethod
    def load(self, files: Files) -> None:
        """Load the tables into the contender's own format. Not measured."""

    @abstractmethod
    def rows(self) -> Any:
        """The whole result, in the contender's own format."""

    def count(self) -> int:
        """The number of rows of the result."""
        return len(self.rows())

    @abstractmethod
    def first(self, rows: int) -> int:
        """Get any `rows` rows of the result, or all if there are fewer. Returns how many there were."""

    def answer(self, result: Any) -> Answer:
        """The answer by which results of `rows` are compared. Not measured."""
        return answer_of(self.arrow(result), self.case.question)

    def arrow(self, result: Any) -> pa.Table:
        return result
