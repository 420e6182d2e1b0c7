"""What a contender is asked to do. Modules of contenders can be imported where their packages are not installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyarrow as pa

from benchmarks.nonequi.answer import Answer, answer_of
from benchmarks.nonequi.case import Case, Files


class Contender(ABC):
    title: ClassVar[str]
    environment: ClassVar[str] = "tables"
    """The virtual environment that has its packages."""
    packages: ClassVar[tuple[str, ...]]
    """The distributions whose versions are recorded; the first is the contender itself."""
    needs: ClassVar[str] = "`make bench-nonequi` installs it"
    """What it takes to install it."""
    first_by: ClassVar[str]
    """How it is asked for the first rows."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @classmethod
    @abstractmethod
    def cannot(cls, case: Case) -> str | None:
        """Why it has no answer to this case; None if it has one."""

    @abstractmethod
    def load(self, files: Files) -> None:
        """Bring the tables into the contender's own form. Is not measured."""

    @abstractmethod
    def rows(self) -> Any:
        """The whole result, in the contender's own form."""

    def count(self) -> int:
        """How many rows the result has."""
        return len(self.rows())

    @abstractmethod
    def first(self, rows: int) -> int:
        """Get these many rows of the result, whichever; return how many there were."""

    def answer(self, result: Any) -> Answer:
        """What the result of `rows` is compared by. Is not measured."""
        return answer_of(self.arrow(result), self.case.question)

    def arrow(self, result: Any) -> pa.Table:
        return result
