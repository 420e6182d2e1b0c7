"""Directories that no other user can write to or replace. Attacks on their uses are tested where they are used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dovetail.core.directories import check_contents, is_plain_name, private_directory, user_cache
from dovetail.errors import InputError

SOMEBODY = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_made_with_all_that_is_missing(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "a" / "b")
    assert made == tmp_path / "a" / "b"
    assert mode_of(made) == mode_of(made.parent) == 0o700
    assert private_directory(made) == made


def test_others_may_have_read_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    assert mode_of(private_directory(tmp_path / "a")) == 0o700


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777, 0o2770])
def test_others_can_write_to_it(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    with pytest.raises(InputError, match=r"a is not safe from other users: .*a can be written to by others"):
        private_directory(tmp_path / "a")
    assert mode_of(tmp_path / "a") == mode


def test_others_can_replace_it(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "a" / "b" / "c")
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(InputError, match="/a can be written to by others"):
        private_directory(made)
    (tmp_path / "a").chmod(0o1777)  # like /tmp, where only the owner can
    assert private_directory(made) == made


@needs_root
@pytest.mark.parametrize("which", ["a", "a/b"])
def test_of_somebody_else(tmp_path: Path, which: str) -> None:
    made = private_directory(tmp_path / "a" / "b")
    os.chown(tmp_path / which, SOMEBODY, SOMEBODY)
    with pytest.raises(InputError, match=f"{which} belongs to user {SOMEBODY}"):
        private_directory(made)


def test_links(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "up").symlink_to("deep/er/..")
    (tmp_path / "round").symlink_to(tmp_path / "up")
    assert private_directory(tmp_path / "round" / "a") == tmp_path / "deep" / "a"
    (tmp_path / "there").symlink_to(tmp_path / "deep" / "a")
    with pytest.raises(InputError, match="there is a link"):
        private_directory(tmp_path / "there")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InputError, match="circle is a link"):
        private_directory(tmp_path / "circle" / "a")


def test_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open")
    with pytest.raises(InputError, match="/open can be written to by others"):
        private_directory(tmp_path / "link" / "a")


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a directory"):
        private_directory(tmp_path / "file" / "a")
    with pytest.raises(InputError, match="a is a relative path"):
        private_directory(Path("a"))


def test_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    check_contents(tmp_path)
    (tmp_path / "a" / "link").symlink_to("file")
    with pytest.raises(InputError, match=r"link is a link. Remove"):
        check_contents(tmp_path)


@needs_root
@pytest.mark.parametrize("which", ["a", "a/file"])
def test_contents_of_somebody_else(tmp_path: Path, which: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    os.chown(tmp_path / which, SOMEBODY, SOMEBODY)
    with pytest.raises(InputError, match=f"{which} belongs to user {SOMEBODY}. Remove {tmp_path}"):
        check_contents(tmp_path)


def test_user_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/me")
    assert user_cache() == Path("/scratch/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "scratch")
    assert user_cache() == Path("/home/me/.cache")
    monkeypatch.setenv("HOME", "nowhere")
    assert user_cache() is None


def test_names_that_do_not_lead_out_of_a_directory() -> None:
    assert is_plain_name("00000017-l-3f2a.arrow")
    assert is_plain_name("..a")
    assert not any(map(is_plain_name, ("", ".", "..", "a/b", "/a", "../a", "a\0", None, 7)))
