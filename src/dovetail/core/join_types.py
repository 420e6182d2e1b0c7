"""Join types: what they emit, and the rows for which it matters whether they have a partner."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from dovetail.arguments import nearest
from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.habits import JOIN_TYPES


class JoinType(StrEnum):
    """A join type by its canonical name."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"
    RIGHT_ANTI = "right_anti"
    """Internal: the right rows without a partner, which a full join emits in addition to a left join."""

    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def read(cls, how: str) -> JoinType:
        """Parse any of Spark's names for a join type."""
        found = ALIASES.get(str(how).lower())
        if found is None:
            if not isinstance(how, str):
                raise InputError(
                    f"how must be a word such as 'left'; got {_shown(how)}. Conditions go in a list: on=[…, …]."
                )
            names = ", ".join(sorted(set(ALIASES.values())))
            raise InputError(f"how must be one of {names}; got {how!r}.{_hint(str(how).lower())}")
        return found

    @cached_property
    def emits_pairs(self) -> bool:
        """Whether matching pairs are results; otherwise results are rows of one side."""
        return self.only is None

    @cached_property
    def only(self) -> Side | None:
        """The side whose rows alone are results, because they have a partner or because they have none."""
        match self:
            case JoinType.LEFT_SEMI | JoinType.LEFT_ANTI:
                return Side.LEFT
            case JoinType.RIGHT_ANTI:
                return Side.RIGHT
        return None

    @cached_property
    def padded(self) -> tuple[Side, ...]:
        """The sides whose rows are also emitted, padded with nulls, if they have no partner."""
        match self:
            case JoinType.LEFT:
                return (Side.LEFT,)
            case JoinType.RIGHT:
                return (Side.RIGHT,)
            case JoinType.FULL:
                return (Side.LEFT, Side.RIGHT)
        return ()

    @cached_property
    def preserved(self) -> tuple[Side, ...]:
        """The sides whose rows are results if they match nothing."""
        return self.padded if self.only is None or self is JoinType.LEFT_SEMI else (self.only,)

    @cached_property
    def tracked(self) -> tuple[Side, ...]:
        """The sides for which the join must track which rows have a partner."""
        return self.padded if self.only is None else (self.only,)


ALIASES = {
    "inner": JoinType.INNER,
    **dict.fromkeys(["left", "leftouter", "left_outer"], JoinType.LEFT),
    **dict.fromkeys(["right", "rightouter", "right_outer"], JoinType.RIGHT),
    **dict.fromkeys(["full", "outer", "fullouter", "full_outer"], JoinType.FULL),
    **dict.fromkeys(["semi", "leftsemi", "left_semi"], JoinType.LEFT_SEMI),
    **dict.fromkeys(["anti", "leftanti", "left_anti"], JoinType.LEFT_ANTI),
}
"""Spark's names of join types."""


def _shown(how: object) -> str:
    kind = type(how)
    return repr(how) if kind.__module__ == "builtins" else f"a {kind.__module__.split('.')[0]} {kind.__name__}"


def _hint(how: str) -> str:
    """The join type that was probably meant, also with its words in another order."""
    if how in JOIN_TYPES:
        return f" {JOIN_TYPES[how]}."
    turned = "_".join(reversed(how.split("_")))
    meant = nearest(how, ALIASES) or nearest(turned, ALIASES)
    return f" Did you mean {ALIASES[meant].value!r}?" if meant else ""
