"""The outcome of a claim when its experiment is repeated: figures for each setting, and the resulting verdict.

reproduced         it holds in every setting, with the printed size of the effect, if there is one
direction          it holds in every setting, but the printed size is not reached, or not judged
conditional        it holds in some settings
contradicted       it holds in no setting
not reproducible   the paper does not say enough to try it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self


class Verdict(StrEnum):
    REPRODUCED = "reproduced"
    DIRECTION = "direction"
    CONDITIONAL = "conditional"
    CONTRADICTED = "contradicted"
    NOT_REPRODUCIBLE = "not reproducible"


class Part(NamedTuple):
    """A claim in one setting."""

    when: str  # the setting, and the requirement
    here: str  # the outcome
    holds: bool


class Plot(NamedTuple):
    """Lines by name, as points (x, y)."""

    figure: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log_y: bool = False
    shaded: Sequence[tuple[float, float]] = ()  # spans of x
    shaded_as: str = ""  # their name in the legend


class Shares(NamedTuple):
    """Shares of all results found while rows arrive, in one setting: as in the paper, and as users get them."""

    when: str
    bound: float | None  # of any policy, if arrivals are in random order
    printed: float  # the paper's operator, memory in rows
    ours: float  # our variant of it, memory in rows
    printed_in_bytes: float  # including indexes and buffers
    ours_in_bytes: float
    auto_in_bytes: float


@dataclass(slots=True)
class Finding:
    """The outcome of one claim."""

    claim: str
    setting: str
    parts: list[Part] = field(default_factory=list)
    sizes: list[Part] = field(default_factory=list)  # the size of the effect, if it is printed
    unsized: str = ""  # why the printed size is not judged
    guards: list[Part] = field(default_factory=list)  # not printed, but our fault if they do not hold
    beside: list[str] = field(default_factory=list)  # figures that do not affect the verdict
    shares: list[Shares] = field(default_factory=list)
    missing: str = ""  # what the paper would have to say for the claim to be tried
    plots: list[Plot] = field(default_factory=list)

    def judge(self, when: str, here: str, holds: bool) -> None:
        self.parts.append(Part(when, here, bool(holds)))

    def judge_size(self, when: str, here: str, holds: bool) -> None:
        """Judge the size of the effect: if only the size is missed, the verdict is `direction`."""
        self.sizes.append(Part(when, here, bool(holds)))

    def guard(self, when: str, here: str, holds: bool) -> None:
        self.guards.append(Part(when, here, bool(holds)))

    @property
    def verdict(self) -> Verdict:
        if not self.parts:
            return Verdict.NOT_REPRODUCIBLE
        held = [part.holds for part in self.parts]
        if not all(held):
            return Verdict.CONDITIONAL if any(held) else Verdict.CONTRADICTED
        return Verdict.REPRODUCED if all(size.holds for size in self.sizes) and not self.unsized else Verdict.DIRECTION

    @property
    def tried(self) -> list[str]:
        return [part.when for part in (*self.parts, *self.sizes, *self.guards)]

    @property
    def fails(self) -> list[str]:
        return [part.when for part in (*self.parts, *self.sizes, *self.guards) if not part.holds]

    @property
    def holds(self) -> list[str]:
        return [part.when for part in self.parts if part.holds]

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "setting": self.setting,
            "verdict": self.verdict.value,
            "parts": [part._asdict() for part in self.parts],
            "sizes": [part._asdict() for part in self.sizes],
            "unsized": self.unsized,
            "guards": [part._asdict() for part in self.guards],
            "beside": self.beside,
            "shares": [shares._asdict() for shares in self.shares],
            "missing": self.missing,
            "plots": [plot._asdict() for plot in self.plots],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(
            fields["claim"],
            fields["setting"],
            [Part(**part) for part in fields["parts"]],
            [Part(**part) for part in fields["sizes"]],
            fields["unsized"],
            [Part(**part) for part in fields["guards"]],
            fields["beside"],
            [Shares(**shares) for shares in fields["shares"]],
            fields["missing"],
            [Plot(**plot) for plot in fields["plots"]],
        )


class Spread(NamedTuple):
    """A figure over several seeds."""

    least: float
    mean: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        listed = [float(value) for value in values]
        return cls(min(listed), sum(listed) / len(listed), max(listed))

    def __str__(self) -> str:
        least, mean, most = (format(value, ",.0f" if abs(value) >= 1000 else ".3g") for value in self)
        return mean if least == most else f"{mean} ({least} to {most})"


def figures(values: Iterable[float], form: str = ".3g") -> str:
    return ", ".join(format(value, form) for value in values)
