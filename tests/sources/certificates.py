"""Certificates for tests, created with openssl: an authority, a server on loopback, a client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Pair(NamedTuple):
    """A certificate and its private key."""

    certificate: Path
    key: Path


class Certificates(NamedTuple):
    authority: Path
    server: Pair
    client: Pair


def why_not() -> str | None:
    """The reason why certificates cannot be created here, if any."""
    return None if shutil.which("openssl") else "there is no program called openssl"


def make_certificates(directory: Path) -> Certificates:
    """Create certificates signed by a new authority."""
    authority = Pair(directory / "authority.pem", directory / "authority.key")
    _run("req", "-x509", *KEY, "-subj", "/CN=authority", "-days", "2", *_files(authority, "-out"))
    return Certificates(authority.certificate, *(_sign(directory, name, authority) for name in ("server", "client")))


def _sign(directory: Path, name: str, authority: Pair) -> Pair:
    made = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    request = directory / f"{name}.csr"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    _run("req", *KEY, *names, "-keyout", str(made.key), "-out", str(request))
    signer = ["-CA", str(authority.certificate), "-CAkey", str(authority.key), "-CAcreateserial"]
    _run("x509", "-req", "-in", str(request), *signer, "-copy_extensions", "copy", "-days", "2", "-out", str(made[0]))
    return made


def _files(pair: Pair, out: str) -> list[str]:
    return [out, str(pair.certificate), "-keyout", str(pair.key)]


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
