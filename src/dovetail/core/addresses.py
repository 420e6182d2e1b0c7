"""Addresses that may contain secrets. What is shown is assembled from the parsed parts, never cut out of the text.

    s3://key:secret@bucket/state?session_token=…     s3://…@bucket/state?…
    s3://key:sec/ret@bucket/state                    s3://…      an unquoted secret: no other part is certain

Text without a scheme is a path, and is shown as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from dovetail.errors import InputError

HIDDEN = "…"
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
FAMILIAR = re.compile(
    r"[\s\"'<(]*(s3[an]?|gc?s|abfss?|hdfs|grpc(\+\w+)?|postgres(ql)?|https?)(:|[^\w/]*//)|.*//.*@",
    re.IGNORECASE | re.DOTALL,
)
"""Text that must be meant as an address, even if a slash or the colon is missing: paths do not look like this."""
ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://((?P<user>[^/?#]*)@)?"
    r"(?P<host>([\w.~%-]*|\[[0-9A-Fa-f:.]+\])(:\d*)?)(?P<path>(/[^?#]*)?)(\?(?P<query>[^#@]*))?(#(?P<fragment>[^@]*))?",
    re.DOTALL | re.ASCII,
)
DOUBTFUL = re.compile(r"&|(key|password|secret|token)\w*=", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
BARE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/:@?#][^:@?#]*", re.DOTALL)  # scheme:/path, as Hadoop writes it
CONTAINER = re.compile(r"[a-z0-9](-?[a-z0-9])*")
CONTAINER_SCHEMES = ("abfs", "abfss")  # container@account: a container name; a password comes only after a colon
SHORTEST_SECRET = 4  # characters: shorter values would match in any text
HARMLESS = ("region", "scheme", "endpoint_override")  # names in a query that messages may show
ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
UNQUOTED = "Write scheme://user:password@host/path, with %2F %3F %23 %40 for / ? # @ in a name or password."


class Address(NamedTuple):
    scheme: str
    user: str | None  # with the password, as written
    host: str  # with the port
    path: str
    query: str | None
    fragment: str | None

    @property
    def has_doubtful_path(self) -> bool:
        """Whether the path may be the end of a password, or a query without its question mark."""
        return "@" in self.path or DOUBTFUL.search(self.path.partition(";")[0]) is not None

    def shown(self) -> str:
        name, colon, _ = (self.user or "").partition(":")
        container = self.scheme.lower() in CONTAINER_SCHEMES and CONTAINER.fullmatch(name)
        user = "" if self.user is None else f"{name}{colon and ':' + HIDDEN}@" if container else f"{HIDDEN}@"
        plain, mark, _ = self.path.partition(";")  # Spark Connect puts its token after the semicolon
        path = f"/{HIDDEN}" if self.has_doubtful_path else plain + (mark and mark + HIDDEN)
        rest = ("" if self.query is None else f"?{HIDDEN}") + ("" if self.fragment is None else f"#{HIDDEN}")
        return f"{self.scheme}://{user}{self.host}{path}{rest}"


def scheme_of(location: str | os.PathLike[str]) -> str:
    """The scheme of an address, in lower case; "" for a path, "…" for a malformed address."""
    text = os.fspath(location)
    if found := SCHEME.match(text):
        return found[1].lower()
    return HIDDEN if "://" in text or FAMILIAR.match(text) else ""


def parse_address(location: str) -> Address | None:
    """The parsed parts; None if they are ambiguous because of a / ? # @ that should have been quoted."""
    found = ADDRESS.fullmatch(location)
    if found is None or CONTROL.search(location):
        return None
    address = Address(*(found[part] for part in ("scheme", "user", "host", "path", "query", "fragment")))
    is_certain = "@" not in address.path or (address.user is None and ":" not in address.host)
    return address if is_certain else None


def redacted(location: str | os.PathLike[str]) -> str:
    """A path unchanged; of an address only what cannot be secret: no user, no query, nothing if it is malformed."""
    text = os.fspath(location)
    scheme = scheme_of(text)
    if not scheme:
        return text
    if scheme == "file" and not re.match(r"file://[^/]", text, re.IGNORECASE):
        return text
    if (found := parse_address(text)) is not None:
        return found.shown()
    if BARE.fullmatch(text) and not DOUBTFUL.search(text):
        return text
    return HIDDEN if scheme == HIDDEN else f"{text[: len(scheme)]}://{HIDDEN}"


def local_path(given: str | os.PathLike[str], what: str) -> Path:
    """A path on this machine. An address is refused, and not shown."""
    if scheme_of(given):
        raise InputError(f"{redacted(given)}: {what}, and this is an address.")
    return Path(given)


def without_secrets(text: str, location: str, others: Iterable[str] = ()) -> str:
    """Another library's message, without what `redacted` would hide of an address and without the other secrets."""
    text = text.replace(location, redacted(location))
    found = parse_address(location)
    secrets = [*others, *(os.environ.get(name, "") for name in ENVIRONMENT)]
    if found is not None:
        container = found.scheme.lower() in CONTAINER_SCHEMES
        secrets += (found.user or "").split(":")[1 if container else 0 :]
        pairs = parse_qsl(found.query or "", keep_blank_values=True)
        secrets += [part for pair in pairs for part in pair if part not in HARMLESS]
        secrets += [found.fragment or "", found.path.strip("/") if found.has_doubtful_path else ""]
        secrets += re.split("[;=]", found.path.partition(";")[2])
    elif scheme_of(location):
        return "its own words may have a secret in them and are not shown"
    forms = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= SHORTEST_SECRET:
            text = text.replace(form, HIDDEN)
    return text
