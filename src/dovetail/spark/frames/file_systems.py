"""Opens the files that a DataFrame reads, with the credentials from Spark's configuration.

    s3a://bucket/…                    fs.s3a.access.key, .secret.key, .session.token, .endpoint, .endpoint.region,
                                      .connection.ssl.enabled, and the same for one bucket: fs.s3a.bucket.BUCKET.…
    abfss://container@account.…/…     fs.azure.account.key.ACCOUNT.…

Anything not configured is left to the cloud's defaults: environment, profile, role of the machine. Credentials are sent
to the tasks with the join, as Spark sends its configuration, and are never printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from dovetail.core.addresses import scheme_of
from dovetail.storage.local_store import LocalStore
from dovetail.storage.object_store import KNOWN, ObjectStore, make_s3
from dovetail.storage.open_store import open_store, opener_of
from dovetail.storage.store import FileSystem, Store

Get = Callable[[str], str | None]
"""Returns a Hadoop setting by name."""

S3_SETTINGS = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
ROOT = LocalStore(Path("/"))


@dataclass(frozen=True, slots=True)
class ConfiguredS3:
    """Opens a bucket with Spark's settings."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self, uri: str) -> tuple[FileSystem, str]:
        bucket = urlsplit(uri).netloc
        return make_s3(bucket, dict(self.settings)), bucket


@dataclass(frozen=True, slots=True)
class ConfiguredAzure:
    """Opens a container with the account key from Spark's settings."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self, uri: str) -> tuple[FileSystem, str]:
        return pafs.AzureFileSystem(**dict(self.settings)), urlsplit(uri).netloc.partition("@")[0]


def stored_file(spark: SparkSession, uri: str, roots: dict[str, Store]) -> tuple[Store, str]:
    """The store and the name in it of a file that Spark names by URI. `roots`: the stores known so far."""
    parts = urlsplit(uri)
    name = unquote(parts.path).lstrip("/")
    if scheme_of(uri) in ("", "file"):
        return ROOT, name
    root = f"{parts.scheme}://{parts.netloc}"
    if root not in roots:
        roots[root] = _open_root(root, _hadoop_settings(spark))
    return roots[root], name


def _open_root(root: str, get: Get) -> Store:
    parts = urlsplit(root)
    made = opener_of(root)
    if made is not None:  # registered by the user
        return ObjectStore(root, made)
    match KNOWN.get(parts.scheme):
        case "s3":
            settings = _s3_settings(parts.netloc, get)
            return ObjectStore(root, ConfiguredS3(settings)) if settings else open_store(root)
        case "abfs" | "abfss":
            account = parts.netloc.partition("@")[2]
            key = get(f"fs.azure.account.key.{account}")
            known = (("account_name", account.partition(".")[0]), ("account_key", key or ""))
            return ObjectStore(root, ConfiguredAzure(known)) if key else open_store(root)
    return open_store(root)


def _s3_settings(bucket: str, get: Get) -> tuple[tuple[str, str], ...]:
    def setting(name: str) -> str | None:
        return get(f"fs.s3a.bucket.{bucket}.{name}") or get(f"fs.s3a.{name}")

    found = {ours: value for name, ours in S3_SETTINGS.items() if (value := setting(name))}
    endpoint = setting("endpoint")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        ssl = setting("connection.ssl.enabled") != "false"
        found |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or ("https" if ssl else "http")}
        found.setdefault("region", "us-east-1")  # servers other than AWS have none
    return tuple(sorted(found.items()))


def _hadoop_settings(spark: SparkSession) -> Get:
    configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def get(name: str) -> str | None:
        return spark.conf.get(name, None) or configuration.get(name)

    return get
