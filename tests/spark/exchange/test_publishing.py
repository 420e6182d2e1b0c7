"""Writers that die at any step: readers see all files of a write or none, and the next writer cleans up."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.storage.s3_server import SECRET_KEY, Faults, S3Server, s3_server

from dovetail.errors import InputError, StateError
from dovetail.spark.exchange import publishing
from dovetail.spark.exchange.publishing import STAGE, commit, finish_others, stage_for, written_files
from dovetail.storage import object_store
from dovetail.storage.local_store import LocalStore
from dovetail.storage.open_store import open_store
from dovetail.storage.owned_place import own
from dovetail.storage.store import Store

OWN = "f" * 32


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        server.faults = Faults(error=0.05, lose=0.05)
        yield server


@pytest.fixture(params=["directory", "s3"])
def target(request: pytest.FixtureRequest, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    server.objects.clear()
    return open_store(tmp_path / "table") if request.param == "directory" else open_store(server.uri("table"))


def write(target: Store, mode: str, names: list[str], identity: str) -> None:
    """Write like a job: files into a stage, one more from a failed attempt, then the commit."""
    stage = stage_for(target, mode, f"{STAGE}{identity}")
    for name in [*names, f"failed-{identity}"]:
        stage.put(name, name.encode())
    commit(target, stage, names, mode)


def visible(target: Store) -> set[str]:
    """The files seen by a reader that lists the directory."""
    return {e.name for e in target.entries(recursive=True) if not e.name.startswith("_")}


def known(target: Store) -> set[str]:
    """The files seen by a reader that uses Dovetail. Checks their contents."""
    found = written_files(target)
    for address in found:
        path = Path(address) if target.path is not None else None
        if path is not None:
            assert path.read_text() == path.name
        else:
            assert SECRET_KEY not in address
            place, _, name = address.partition("bucket/")[2].rpartition("/")
            assert (open_store(target.uri.replace("bucket/table", f"bucket/{place}"))).get(name) == name.encode()
    return {address.rpartition("/")[2] for address in found}


def test_modes(target: Store) -> None:
    write(target, "error", ["a", "b"], "1")
    assert visible(target) == known(target) == {"a", "b"}
    with pytest.raises(InputError, match="exists: give another path"):
        write(target, "error", ["c"], "2")
    write(target, "append", ["c"], "3")
    assert visible(target) == known(target) == {"a", "b", "c"}
    write(target, "overwrite", ["d"], "4")
    assert visible(target) == known(target) == {"d"}
    assert not [name for name in target.folders() if name.startswith(STAGE)]
    assert target.exists("_SUCCESS")


# Writers to kill are forked from one process with all imports, to save time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dovetail.spark.exchange.publishing", __name__])


def write_and_die(place: str, mode: str, names: list[str], identity: str, steps: int) -> None:
    """A writer that is killed after this many changes in storage."""
    left = steps

    def counted(original: Callable[..., None]) -> Callable[..., None]:
        def change(*given: Any, **named: Any) -> None:
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            original(*given, **named)

        return change

    for store in (LocalStore, object_store.ObjectStore):
        for method in ("put", "publish", "delete", "delete_all"):
            setattr(store, method, counted(getattr(store, method)))
    publishing.os.rename = counted(os.rename)  # type: ignore[assignment]
    write(open_store(place), mode, names, identity)


@pytest.mark.parametrize("mode", ["append", pytest.param("overwrite", marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_at_any_step(target: Store, mode: str) -> None:
    """After the kill, readers that use Dovetail see all or nothing; after the next write, all readers do."""
    before, new = ["old-1", "old-2"], ["new-1", "new-2"]
    after = {*before, *new} if mode == "append" else set(new)
    outcomes = []
    for steps in itertools.count():
        target.delete_all()
        write(target, "overwrite", before, f"old{steps}")
        writer = PROCESSES.Process(target=write_and_die, args=(target.uri, mode, new, f"new{steps}", steps))
        writer.start()
        writer.join()
        found = known(target)
        assert found in (set(before), after)
        outcomes.append(found == after)
        write(target, "append", ["last"], f"last{steps}")
        assert visible(target) == known(target) == {*found, "last"}
        if writer.exitcode == 0:
            break
        assert writer.exitcode == -signal.SIGKILL
    assert outcomes == sorted(outcomes)  # nothing before some step, everything after it
    assert not outcomes[0]
    assert outcomes[-1]


def test_what_is_left_without_a_commit_goes(target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(target, "error", ["a"], "1")
    stage_for(target, "append", f"{STAGE}dead").put("b", b"")
    finish_others(target)
    assert (target / f"{STAGE}dead").exists("b")  # its writer may still be running on another machine
    monkeypatch.setattr(publishing, "FORGOTTEN_S", -10.0)
    write(target, "append", ["c"], "2")
    assert not (target / f"{STAGE}dead").exists("b")
    assert visible(target) == {"a", "c"}


def _leave(place: str) -> None:
    own(stage_for(open_store(place), "append", f"{STAGE}{OWN}")).put("b", b"")
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_writer_of_this_machine_has_left_goes_at_once(target: Store) -> None:
    write(target, "error", ["a"], "1")
    writer = PROCESSES.Process(target=_leave, args=(target.uri,))
    writer.start()
    writer.join()
    assert (target / f"{STAGE}{OWN}").exists("b")
    finish_others(target)
    assert not (target / f"{STAGE}{OWN}").exists("b")
    assert visible(target) == {"a"}


def planted(parent: Path, decided: dict[str, Any]) -> Path:
    """A stage that looks like that of a writer that died after its commit."""
    stage = parent / f"{STAGE}{'0' * 32}"
    stage.mkdir()
    (stage / "part-1").write_text("part-1")
    (stage / "commit.json").write_text(json.dumps(decided))
    return stage


DECIDED = {"target": "table", "files": ["part-1"], "replaces": ["part-0"], "as_directory": False}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_stage_that_anybody_could_make_is_passed_over(tmp_path: Path) -> None:
    target = open_store(tmp_path / "table")
    write(target, "error", ["part-0"], "1" * 32)
    stage = planted(tmp_path, DECIDED)
    os.chown(stage, 54321, 54321)
    tmp_path.chmod(0o1777)
    finish_others(target)
    assert known(target) == visible(target) == {"part-0"}
    tmp_path.chmod(0o755)  # now a user who could create it could also change the table
    assert known(target) == {"part-1"}
    finish_others(target)
    assert visible(target) == {"part-1"}


def test_a_link_is_no_stage(tmp_path: Path) -> None:
    target = open_store(tmp_path / "table")
    write(target, "error", ["part-0"], "1" * 32)
    stage = planted(tmp_path, DECIDED)
    stage.rename(tmp_path / "elsewhere")
    stage.symlink_to(tmp_path / "elsewhere")
    finish_others(target)
    assert known(target) == visible(target) == {"part-0"}
    assert (tmp_path / "elsewhere" / "part-1").exists()


@pytest.mark.parametrize("names", [{"files": ["../part-1"]}, {"replaces": ["../thesis"]}, {"files": [7]}])
def test_a_commit_does_not_lead_out_of_the_table(names: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "thesis").touch()
    target = open_store(tmp_path / "table")
    write(target, "error", ["part-0"], "1" * 32)
    planted(tmp_path, {**DECIDED, **names})
    with pytest.raises(StateError, match=r"commit\.json is damaged: a name leads out of the table"):
        finish_others(target)
    assert (tmp_path / "thesis").exists()
