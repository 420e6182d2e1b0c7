"""Damaged manifests and layouts: reading them raises a clear error, or nothing is lost."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.seed import seeded
from tests.storage.test_stored_state import QUERY, join_directory
from tests.test_state_upgrade import GOLDEN

from dovetail.cli.state_command import show_state
from dovetail.errors import DovetailError, StateError
from dovetail.storage.stored_state import parse_manifest, stored_joins

KEPT = sorted(path.parent for path in GOLDEN.glob("*/*/manifest.json"))
OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, 1 << 70, "", "x", "../x", [], [[]], {}, {"checksum": 1}, {"blocks": 0})
CASES = 600


def manifest(kept: Path) -> dict[str, Any]:
    """The manifest as in Spark's state store."""
    document = json.loads((kept / "manifest.json").read_text())
    del document["found"]
    return {**document, "batch": 7, "previous": [], "notes": None, "emitted": 12}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([at] if at else []), *(place for key, one in inner for place in places(one, (*at, key)))]


def change(document: Any, random_: random.Random) -> str:
    """Remove or replace a random value."""
    changed = json.loads(json.dumps(document))
    *path, last = random_.choice(places(changed))
    inside = changed
    for key in path:
        inside = inside[key]
    if random_.random() < 0.4:
        del inside[last]
    else:
        inside[last] = random_.choice(OTHERS)
    return json.dumps(changed)


def cut(document: Any, random_: random.Random) -> str:
    text = json.dumps(document)
    return text[: random_.randrange(len(text))]


def flip(document: Any, random_: random.Random) -> str:
    text = bytearray(json.dumps(document).encode())
    for _ in range(random_.randint(1, 4)):
        text[random_.randrange(len(text))] ^= 1 << random_.randrange(7)
    return text.decode("latin-1")


def swap(document: Any, random_: random.Random) -> str:
    """Replace a random value by another part of the document."""
    changed = json.loads(json.dumps(document))
    *path, last = random_.choice(places(changed))
    taken = changed
    for key in (*path, last):
        taken = taken[key]
    *path, last = random_.choice(places(changed))
    inside = changed
    for key in path:
        inside = inside[key]
    inside[last] = json.loads(json.dumps(taken))
    return json.dumps(changed)


DAMAGES: tuple[Callable[[Any, random.Random], str], ...] = (change, change, cut, flip, swap)


def look(state_dir: Path) -> None:
    """Read everything that users and tools read."""
    for by_cell in (False, True):
        show_state(str(state_dir), None, by_cell, Console(file=io.StringIO()))
    (join,) = stored_joins(state_dir)
    _ = (join.algorithm, join.how, join.condition)
    for alias in join.columns:
        join.read(3, alias)


def set_up(state_dir: Path, kept: Path) -> Path:
    inputs = int(kept.name.rpartition("-")[2])
    directory = join_directory(state_dir, inputs)
    shutil.copytree(kept, directory / "cell-3", ignore=shutil.ignore_patterns("manifest.json"))
    (directory / "manifest-3.json").write_text(json.dumps([manifest(kept)]))
    return directory


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.parent.name}/{kept.name}")
def test_damaged_state_is_named(kept: Path, tmp_path: Path) -> None:
    directory = set_up(tmp_path, kept)
    look(tmp_path)
    random_ = seeded(f"{kept.parent.name}/{kept.name}")
    layout = json.loads((directory / "layout.json").read_text())
    for number in range(1 + CASES // len(KEPT)):
        damage = DAMAGES[number % len(DAMAGES)]
        for name, document in (("manifest-3.json", [manifest(kept)]), ("layout.json", layout)):
            damaged = damage(document, random_)
            (directory / name).write_text(damaged)
            try:
                look(tmp_path)
            except DovetailError as error:
                assert isinstance(error, StateError), damaged  # noqa: PT017
                assert str(directory) in str(error), (error, damaged)  # noqa: PT017
            except Exception as error:
                raise AssertionError(f"{damage.__name__}: {error!r} of {damaged}") from error
            (directory / name).write_text(json.dumps(document))


@pytest.mark.parametrize("kept", KEPT[:3], ids=lambda kept: f"{kept.parent.name}/{kept.name}")
def test_a_damaged_manifest_of_a_cell_is_named(kept: Path) -> None:
    """The manifest in Spark's state store."""
    document, random_ = manifest(kept), seeded(5)
    assert parse_manifest(json.dumps(document)) == document
    for number in range(100):
        damaged = DAMAGES[number % len(DAMAGES)](document, random_)
        try:
            parse_manifest(damaged)
        except StateError as error:
            assert "state is damaged" in str(error)  # noqa: PT017


def test_a_state_directory_without_damage(tmp_path: Path) -> None:
    set_up(tmp_path, KEPT[0])
    out = io.StringIO()
    show_state(str(tmp_path), QUERY, True, Console(file=out))
    assert QUERY in out.getvalue()
