"""Opens the place of state, results or copies: a directory, or a prefix in an object store or another file system.

    open_store("/shared/state")       LocalStore
    open_store("s3://bucket/state")   ObjectStore    through pyarrow.fs; memory-mapped from a cache on the worker

Credentials come from the cloud's own configuration, or from the URI. Since a URI may contain secrets, it is printed
only `redacted`, as stores do themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from dovetail.core.addresses import UNQUOTED, parse_address, redacted, scheme_of
from dovetail.errors import InputError
from dovetail.storage.local_store import LocalStore
from dovetail.storage.store import Opener, Store

_openers: dict[str, Opener] = {}

Place = str | os.PathLike[str] | Store
"""A path, a URI, or a store."""


def open_store(place: Place) -> Store:
    """The store at a path or URI."""
    if isinstance(place, Store):
        return place
    location = os.fspath(place)
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return LocalStore(Path(urlsplit(location).path if scheme else location).absolute())
    if scheme not in _openers and parse_address(location) is None:
        raise InputError(f"{redacted(location)}: this address cannot be read. {UNQUOTED}")
    from dovetail.storage.object_store import ObjectStore, opener  # pyarrow.fs is slow to import

    return ObjectStore(location, _openers.get(scheme) or opener(scheme, location))


def is_local(place: Place) -> bool:
    """Whether it is a path in a local file system."""
    return isinstance(place, LocalStore) or (not isinstance(place, Store) and scheme_of(place) in ("", "file"))


def register_file_system(scheme: str, open_uri: Opener) -> None:
    """Register a function that opens URIs of a scheme. It is sent to the workers with the join."""
    _openers[scheme.lower()] = open_uri


def opener_of(location: str) -> Opener | None:
    """The registered opener for the scheme of a URI."""
    return _openers.get(scheme_of(location))
