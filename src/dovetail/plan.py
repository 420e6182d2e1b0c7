"""A plan: what a join will do, and why. Plans are plain values; making one reads no data."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.condition import Condition, describe, text_of


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision with its reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class JoinPlan:
    condition: Condition
    how: str
    operator: Choice
    at_rest: bool = False  # the operator is a kernel that sees both sides complete
    router: Choice | None = None  # None in process: there is only one cell
    cells: int = 1
    memory_bytes: int | None = None
    advice: tuple[str, ...] = field(default=())

    def explain(self) -> str:
        lines = [("join", self.how), ("condition", self.condition.text)]
        lines += [("driven by", describe(p)) for p in self.condition.predicates]
        for side in (0, 1):
            lines += [("filter", f"{text_of(f)}, before the join") for f in self.condition.filters[side]]
        lines += [("checked", f"{text_of(r)}, on every candidate pair") for r in self.condition.residual]
        lines.append(("kernel" if self.at_rest else "operator", f"{self.operator.name}: {self.operator.why}"))
        if self.router is not None:
            lines.append(("router", f"{self.router.name}, {self.cells} cells: {self.router.why}"))
        lines.append(("memory", "no limit" if self.memory_bytes is None else f"{self.memory_bytes:,} bytes per cell"))
        lines += [("advice", advice) for advice in self.advice]
        return "\n".join(f"{name:<10} {text}" for name, text in lines)

    def __str__(self) -> str:
        return self.explain()
