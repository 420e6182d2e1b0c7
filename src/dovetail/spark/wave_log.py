"""What a progressive join of tables at rest is to do and has done, in files beside its blocks.

    plan.json    blocks, cells, the order in which they are drawn; written once the blocks are
    done.json    what each cell gave, and how much of it was handed out; replaced in one move at each step

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
from dovetail.spark.wave_blocks import CellBlock

PLAN, DONE = "plan.json", "done.json"
FORMAT = 1


@dataclass(slots=True)
class Done:
    """A cell that has been joined."""

    values: list[float]  # how many matches, then the partial aggregates
    block: dict[str, Any] | None = None  # its results, until they are all handed out
    handed_out: int = 0  # batches
    handed_rows: int = 0


@dataclass(slots=True)
class WaveLog:
    layout: dict[str, Any]  # what must be the same for the work to be the same
    blocks: list[CellBlock]
    cells: list[int]  # those in which both sides have rows
    weights: list[float]
    seed: int
    done: list[Done] = field(default_factory=list)  # in the order in which the cells are drawn

    def begin(self, directory: Path) -> None:
        document = {
            "format": FORMAT,
            "layout": self.layout,
            "blocks": [block.to_json() for block in self.blocks],
            "cells": self.cells,
            "weights": self.weights,
            "seed": self.seed,
        }
        _replace(directory / PLAN, document)

    def note(self, directory: Path) -> None:
        """Keep what is done."""
        _replace(directory / DONE, [asdict(done) for done in self.done])

    @classmethod
    def read(cls, directory: Path, layout: dict[str, Any]) -> WaveLog | None:
        """The log of the same join, if one was begun there; an error if another was."""
        plan, done = directory / PLAN, directory / DONE
        if not plan.exists():
            return None
        try:
            document = json.loads(plan.read_text())
            same = document.pop("format") == FORMAT and document["layout"] == layout
            document["blocks"] = [CellBlock.from_json(block) for block in document["blocks"]]
            log = cls(**document)
            if done.exists():
                log.done = [Done(**fields) for fields in json.loads(done.read_text())]
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{directory} is damaged: {error}. Remove it and start again.") from error
        if not same:
            raise StateError(f"{directory} holds another progressive join: give work_dir= another directory.")
        return log


def _replace(path: Path, document: Any) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document))
    os.replace(unfinished, path)
