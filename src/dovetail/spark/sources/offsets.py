"""The position of a stream, as Spark keeps it in the checkpoint: JSON of simple values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from dovetail.sources.protocol import Position

READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "key": lambda parts: tuple(map(_read, parts)),
}


@dataclass(frozen=True, slots=True)
class Offset:
    rows: int = 0  # from the start
    position: Position = None  # behind them: a row number, or the last key
    ended: bool = False  # and Spark has been told

    @classmethod
    def read(cls, document: dict[str, Any]) -> Offset:
        return cls(document["rows"], _read(json.loads(document["position"])), document["ended"])

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "position": json.dumps(_encode_value(self.position)), "ended": self.ended}


def _encode_value(value: Any) -> Any:
    match value:
        case tuple():
            return {"key": [_encode_value(part) for part in value]}
        case datetime():  # is a date as well
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case time():
            return {"time": value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
    return value


def _read(document: Any) -> Any:
    if isinstance(document, dict):
        ((kind, value),) = document.items()
        return READERS[kind](value)
    return document
