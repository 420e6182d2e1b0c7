"""What can be watched: one run, or all recordings in a directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dovetail.errors import InputError
from dovetail.live.recording import Followed, Recording, is_recording

SUFFIX = ".jsonl"


class Gallery:
    """Runs by name. A name is looked up among those that are there: it never becomes a path."""

    def __init__(self, what: Recording | str | os.PathLike[str]) -> None:
        self._runs: dict[str, Recording] = {}
        self._directory: Path | None = None
        if isinstance(what, Recording):
            self._runs["run"] = what
            return
        path = Path(what)
        if path.is_dir():
            self._directory = path
        elif path.exists() and not is_recording(path):
            raise InputError(f"{path} is not a recording of a join.")
        else:  # it may be written any time now
            self._runs[path.name] = Followed(path)

    @property
    def single(self) -> bool:
        return self._directory is None

    def runs(self) -> dict[str, Recording]:
        """All that are there now, the latest first."""
        if self._directory is not None:
            for path in self._directory.glob(f"*{SUFFIX}"):
                if path.name not in self._runs and path.is_file() and not path.is_symlink():
                    self._runs[path.name] = Followed(path)
        for run in self._runs.values():
            with suppress(InputError):  # as far as it could be read
                run.refresh()
        known = {name: run for name, run in self._runs.items() if run.heading is not None or self.single}
        return dict(
            sorted(known.items(), key=lambda item: item[1].heading.began if item[1].heading else "", reverse=True)
        )
