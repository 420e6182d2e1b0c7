"""What an operator tells of itself: how much it holds, and all it needs to continue elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """What an operator holds right now."""

    resident_rows: int = 0
    resident_bytes: int = 0
    spilled_rows: int = 0
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """All an operator needs to continue elsewhere. Small and JSON-ready; bulk state is immutable segment files."""

    version: int
    state: dict[str, Any]
    segments: tuple[str, ...]  # names, relative to the block store's directory
