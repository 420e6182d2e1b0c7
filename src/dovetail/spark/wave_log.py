"""What a progressive join of tables at rest is to do and has done, in files beside its blocks.

    plan.json    the scouts; then, once they are written, the blocks, the cells and the order in which they are drawn
    done.json    what the scouts and each cell gave, how much of it was handed out; replaced in one move at each step

A join that is stopped, or killed, goes on from them. Batches that were handed out are not handed out again; after a
kill, the last one may be.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dovetail.errors import StateError
from dovetail.spark.scouts import Scouts
from dovetail.spark.wave_blocks import CellBlock
from dovetail.spark.wave_work import Given

PLAN, DONE = "plan.json", "done.json"
FORMAT = 2


@dataclass(slots=True)
class Drawn:
    """The blocks, and the cells in which they meet."""

    blocks: list[CellBlock]
    cells: list[int]  # those in which both sides have rows
    weights: list[float]
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": [block.to_json() for block in self.blocks],
            "cells": self.cells,
            "weights": self.weights,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Drawn:
        return cls(**{**fields, "blocks": [CellBlock.from_json(block) for block in fields["blocks"]]})


@dataclass(slots=True)
class WaveLog:
    layout: dict[str, Any]  # what must be the same for the work to be the same
    scouts: Scouts | None = None
    drawn: Drawn | None = None  # None: not yet
    found: list[Given] = field(default_factory=list)  # by the scouts
    done: list[Given] = field(default_factory=list)  # in the order in which the cells are drawn

    @property
    def given(self) -> list[Given]:
        return [*self.found, *self.done]

    def begin(self, directory: Path) -> None:
        """Keep what is to do."""
        document = {
            "format": FORMAT,
            "layout": self.layout,
            "scouts": None if self.scouts is None else self.scouts.to_json(),
            "drawn": None if self.drawn is None else self.drawn.to_json(),
        }
        _replace(directory / PLAN, document)

    def note(self, directory: Path) -> None:
        """Keep what is done."""
        document = {"found": self.found, "done": self.done}
        _replace(directory / DONE, {name: [asdict(one) for one in given] for name, given in document.items()})

    @classmethod
    def read(cls, directory: Path, layout: dict[str, Any]) -> WaveLog | None:
        """The log of the same join, if one was begun there; an error if another was."""
        plan, done = directory / PLAN, directory / DONE
        if not plan.exists():
            return None
        try:
            document = json.loads(plan.read_text())
            same = document["format"] == FORMAT and document["layout"] == layout
            scouts, drawn = document["scouts"], document["drawn"]
            log = cls(layout, scouts and Scouts.from_json(scouts), drawn and Drawn.from_json(drawn))
            if done.exists():
                given = json.loads(done.read_text())
                log.found, log.done = ([Given(**fields) for fields in given[name]] for name in ("found", "done"))
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{directory} is damaged: {error}. Remove it and start again.") from error
        if not same:
            raise StateError(f"{directory} holds another progressive join: give work_dir= another directory.")
        return log


def _replace(path: Path, document: Any) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document))
    os.replace(unfinished, path)
