"""A progressive join that tests kill: takes step after step, and writes the pairs of each to a separate file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import dovetail
from dovetail.spark.session.session import local_session

ON = "l.x < r.x AND l.y > r.y"
CELLS = 200


def main(place: Path, master: str) -> None:
    spark = local_session("waves", master)
    left, right = (spark.read.parquet(str(place / name)) for name in ("l", "r"))
    taken = place / "taken"
    taken.mkdir(exist_ok=True)
    before = len(list(taken.glob("*.json")))
    steps = dovetail.progressive(left, right, ON, cells=CELLS, work_dir=str(place / "work"))
    for number, step in enumerate(steps, before):
        pairs = list(zip(step.batch["id"].to_pylist(), step.batch["id_right"].to_pylist(), strict=True))
        unfinished = taken / f"{number}.tmp"
        unfinished.write_text(json.dumps(pairs))
        os.replace(unfinished, taken / f"{number:05}.json")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
