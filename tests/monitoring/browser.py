"""Controls a headless Chromium, if installed, through a pipe: no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.patience import PATIENCE_S

NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)

STARTER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in enumerate(ends, start=3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from file descriptor 3 and writes answers to 4."""


def find_browser() -> str | None:
    """The browser named in `DOVETAIL_BROWSER`, or one with a usual name."""
    return os.environ.get("DOVETAIL_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser does not work as expected."""


class Browser:
    """One page of one browser."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="dovetail-browser-")
        self._log: list[dict[str, Any]] = []
        self._next = 0
        self._buffer = b""
        command, self._to = os.pipe()
        self._from, answer = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(command), str(answer), program, *options, "about:blank"],
            pass_fds=(command, answer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command)
        os.close(answer)
        os.set_blocking(self._from, False)
        self._session: str | None = None
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def look(self, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        """Emulate a screen of this size with this colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def go(self, url: str) -> None:
        if problem := self.call("Page.navigate", url=url).get("errorText"):
            raise BrowserError(f"{url}: {problem}")
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Wait until the expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if value := self.evaluate(script):
                return value
            time.sleep(0.05)
        raise BrowserError(f"this was never true: {script}")

    def forget(self) -> None:
        """Forget the requests and complaints so far."""
        self._read(0.0)
        self._log.clear()

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def requests(self) -> list[str]:
        """The addresses that pages have requested."""
        self._read(0.0)
        return [e["params"]["request"]["url"] for e in self._log if e.get("method") == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[str]:
        """Problems reported in the console: script errors, violations of the content security policy."""
        self._read(0.0)
        entries = [e["params"]["entry"] for e in self._log if e.get("method") == "Log.entryAdded"]
        thrown = [json.dumps(e["params"]) for e in self._log if e.get("method") == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in entries if entry["level"] in ("warning", "error")] + thrown

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for answer in self._read(0.02):
                if answer.get("id") == self._next:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error']}")
                    result: dict[str, Any] = answer["result"]
                    return result
        raise BrowserError(f"no answer to {method}")

    def _read(self, pause_s: float) -> list[dict[str, Any]]:
        """Read the messages received so far; events are kept."""
        if self._process.poll() is not None:
            raise BrowserError(f"the browser has ended with {self._process.returncode}")
        try:
            self._buffer += os.read(self._from, 1 << 20)
        except BlockingIOError:
            time.sleep(pause_s)
        *whole, self._buffer = self._buffer.split(b"\0")
        messages = [json.loads(message) for message in whole]
        self._log += [message for message in messages if "id" not in message]
        return messages

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
