"""The work log of a progressive join of tables at rest: planned and finished work, in files beside its blocks.

    plan.json    the first rows; then, once written, the blocks, the cells and the order in which they are drawn
    done.json    results of the first rows and of each cell, and how many were emitted; replaced as a whole each time

A join that was stopped or killed resumes from them. Emitted batches are not emitted again. After a kill, the last one
may be (the last ones, if a task fetched several).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from dovetail.errors import StateError
from dovetail.spark.early.blocks import CellBlock
from dovetail.spark.early.files import WaveFiles
from dovetail.spark.early.first_results import FirstResults
from dovetail.spark.early.tasks import Given
from dovetail.storage.blocks import Block

PLAN, DONE = "plan.json", "done.json"
FORMAT = 2


@dataclass(slots=True)
class Drawn:
    """The blocks, and the cells in which they are joined."""

    blocks: list[CellBlock]
    cells: list[int]  # cells in which both sides have rows
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
    layout: dict[str, Any]  # must be equal for a join to be resumed
    first: FirstResults | None = None
    drawn: Drawn | None = None  # None: not drawn yet
    found: list[Given] = field(default_factory=list)  # by the first rows
    done: list[Given] = field(default_factory=list)  # in the order in which the cells are drawn

    @property
    def given(self) -> list[Given]:
        return [*self.found, *self.done]

    def begin(self, files: WaveFiles) -> None:
        """Write the planned work."""
        document = {
            "format": FORMAT,
            "layout": self.layout,
            "scouts": None if self.first is None else self.first.to_json(),
            "drawn": None if self.drawn is None else self.drawn.to_json(),
        }
        files.replace(PLAN, json.dumps(document))

    def note(self, files: WaveFiles, *, soon: bool = False) -> None:
        """Write the finished work."""
        document = {"found": self.found, "done": self.done}
        text = json.dumps({name: [asdict(one) for one in given] for name, given in document.items()})
        files.replace(DONE, text, soon=soon)

    @classmethod
    def read(cls, files: WaveFiles, layout: dict[str, Any]) -> WaveLog | None:
        """The log of the same join, if one was begun there. Raises an error if it is of another join."""
        plan = files.read(PLAN)
        if plan is None:
            return None
        directory = files.directory
        try:
            document = json.loads(plan)
            same = document["format"] == FORMAT and document["layout"] == layout
            first, drawn = document["scouts"], document["drawn"]
            log = cls(layout, first and FirstResults.from_json(first), drawn and Drawn.from_json(drawn))
            done = files.read(DONE)
            if done is not None:
                given = json.loads(done)
                log.found, log.done = ([Given(**fields) for fields in given[name]] for name in ("found", "done"))
            for one in log.given:
                if one.block is not None:  # validated, since the file is read and later deleted
                    Block.from_json(one.block)
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{directory} is damaged: {error}. Remove it and start again.") from error
        if not same:
            raise StateError(f"{directory} belongs to another progressive join. Give work_dir= another directory.")
        return log
