"""The directory where a streaming join keeps manifests and segments, and the check that these belong to the join."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from typing import Any

from pyspark.sql import SparkSession

from dovetail.errors import StateError
from dovetail.operators.registry import present_name
from dovetail.spark.session.settings import beside_checkpoints
from dovetail.spark.session.shared_directory import ADVICE, SharedDirectory, working_directory
from dovetail.spark.worker_python import is_connect
from dovetail.storage.blocks import RECOVERY
from dovetail.storage.budget import parse_bytes
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.owned_place import owned_place
from dovetail.storage.store import Store
from dovetail.storage.stored_state import LAYOUT

TABLE = "table"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
DEFAULT_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
AT_ONCE = "spark.sql.execution.arrow.maxBytesPerBatch"

TO_STAY = "Give state_dir=, so that the query can be restarted when it is gone."
log = logging.getLogger("dovetail.spark")

_known_layouts: dict[str, dict[str, Any]] = {}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def state_directory(given: str | None, spark: SparkSession) -> Store:
    """The place for segments: the given one, else beside the session's checkpoints, else a temporary directory.

    It must be reachable by every worker under the same path or URI, and outlive restarts of the query.
    """
    shared = _shared(given, spark)
    if given is None and beside_checkpoints(spark) is None:
        log.warning("the state of this join is in %s, a temporary directory. %s", shared.place, TO_STAY)
    return shared.place


def _shared(given: str | None, spark: SparkSession) -> SharedDirectory:
    given = given or beside_checkpoints(spark)
    return working_directory(spark, given, ADVICE.format("Give state_dir="))


def table_directory(given: str | None, spark: SparkSession) -> Store:
    """A new place in the state directory, for the copy of a table that is joined with a stream.

    Queries of a Connect server may outlive its clients, so a client does not remove it.
    """
    shared = _shared(given, spark)
    if is_connect(spark) or not shared.is_seen:
        return shared.place / f"{TABLE}-{uuid.uuid4().hex}"
    return owned_place(shared.place, TABLE)


def layout_digest(layout: dict[str, Any]) -> str:
    """A digest of a layout. Manifests contain it, to check that state and checkpoint belong together."""
    return hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest()[:32]


def check_layout(join: Place, layout: dict[str, Any], *, is_new: bool = True) -> None:
    """Store the layout of a join's state, or check that it is unchanged.

    `is_new`: no manifest is known, so there may be no layout yet. It is called for every cell, but a worker asks an
    object store only once.
    """
    place = open_store(join)
    if _known_layouts.get(place.key) == layout:
        return
    text = place.get(LAYOUT)
    if text is None:
        # A cell creates its directory after the layout was written. If there is one, read the layout again.
        has_cells = bool(place.folders())
        text = place.get(LAYOUT) if has_cells else None
        if text is None and (has_cells or not is_new):
            raise StateError(
                f"{place / LAYOUT} is missing. It says which join made the state. Give the state_dir= that "
                f"the query had before. {RECOVERY}"
            )
    if text is None:
        place.prepare()
        place.put(LAYOUT, json.dumps(layout).encode(), durable=True)  # several tasks may do so, with the same content
        text = place.get(LAYOUT) or b""
    compare_layouts(place, text, layout)
    if place.path is None:
        _known_layouts[place.key] = layout


def compare_layouts(place: Store, text: bytes, layout: dict[str, Any]) -> None:
    """Refuse state with the layout of another join."""
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise StateError(f"{place / LAYOUT} is damaged: {error}. {RECOVERY}") from error
    name, parameters = present_name(stored.get("algorithm", ""), stored.get("parameters", {}))
    if name != stored.get("algorithm", ""):  # as in releases up to 0.2
        stored = {**stored, "algorithm": name, "parameters": parameters}
    if stored != layout:
        names = [*layout, *(name for name in stored if name not in layout)]
        changed = [name for name in names if stored.get(name) != layout.get(name)]
        what = ", ".join(f"{name} was {stored.get(name)!r} and is now {layout.get(name)!r}" for name in changed)
        raise StateError(
            f"the state in {place} was made by another join: {what}. Start the query as before, or with a new "
            "checkpoint; if one query has several joins, give each of them a metrics= name of its own."
        )


def use_rocksdb(spark: SparkSession) -> None:
    """Make the session use RocksDB for state, unless it has a provider of its own.

    Spark's default provider cannot run the operator that joins streams, and reports it only after the query has
    started. A cell stores one small row there: committing the change takes a third of the time of a snapshot.
    """
    if spark.conf.get(PROVIDER) == DEFAULT_PROVIDER:
        spark.conf.set(PROVIDER, ROCKSDB_PROVIDER)
    if spark.conf.get(PROVIDER) == ROCKSDB_PROVIDER and spark.conf.get(CHANGELOG, None) is None:
        spark.conf.set(CHANGELOG, "true")


def cap_arrow_batch_bytes(spark: SparkSession, nbytes: int) -> None:
    """Make the session pass rows to Python workers in smaller batches, if they are larger: 64 MB unless set.

    A worker holds two of them and a copy, which is more than the whole memory of a join with a small budget.
    """
    if parse_bytes(str(spark.conf.get(AT_ONCE))) > nbytes:
        spark.conf.set(AT_ONCE, str(nbytes))
