"""A run as one HTML file: nothing is fetched, nothing is executed; for screens large and small, light and dark."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from dovetail.errors import InputError
from dovetail.monitoring.html import Html, tag
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.view import body

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def report(recording: Recording | str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Write what a run did as an HTML file. `recording` is one, or the file of one."""
    if not isinstance(recording, Recording):
        recording = Recording.read(recording)
    if recording.heading is None:
        raise InputError(
            "nothing has been recorded yet: give the recording to dovetail.progressive(…, record=…) first."
        )
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(document(recording.heading.title, body(recording), POLICY), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written to: {error.strerror}.") from error
    return target


def document(title: str, content: Html, policy: str, *scripts: Html, **about_main: str) -> str:
    """A whole page; `about_main` are attributes of its main part."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title} · Dovetail"),
        tag("style", Html(style())),
    )
    page = tag("html", head, tag("body", tag("main", content, id="main", **about_main), *scripts), lang="en")
    return f"<!doctype html>\n{page}\n"


def style() -> str:
    return files("dovetail.monitoring").joinpath("style.css").read_text(encoding="utf-8")
