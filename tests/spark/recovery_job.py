"""One run of a streaming join to a file sink; the recovery test starts it, kills it and starts it again."""

import sys
import threading
from pathlib import Path

import dovetail
from dovetail.spark.session import local_session


def main(place: Path) -> None:
    spark = local_session("recovery", conf={"spark.sql.shuffle.partitions": "2"})
    sides = [
        spark.readStream.schema(f"k bigint, {side} bigint").option("maxFilesPerTrigger", 1).parquet(str(place / side))
        for side in ("left", "right")
    ]
    joined = dovetail.join(sides[0], sides[1], "l.k = r.k", state_dir=str(place / "state"))
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(place / "results"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    ended = threading.Event()
    threading.Thread(target=report, args=(query, ended), daemon=True).start()
    query.awaitTermination()
    ended.set()
    spark.stop()
    sys.stdout.write("finished\n")
    sys.stdout.flush()


def report(query: object, ended: threading.Event) -> None:
    """Say which micro-batches are done, so that the test can choose its moment."""
    last = -1
    while not ended.wait(0.05):
        progress = query.lastProgress  # type: ignore[attr-defined]
        if progress is not None and progress.batchId > last:
            last = progress.batchId
            sys.stdout.write(f"batch {last}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
