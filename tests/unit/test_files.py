"""Nothing is ever half-written."""

import errno
import os
from pathlib import Path

import pytest

from mmctl.errors import WorldError
from mmctl.files import new_folder, write_text


def test_equal_text_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "a"
    assert write_text(file, "x") is True
    before = file.stat().st_mtime_ns
    assert write_text(file, "x") is False
    assert file.stat().st_mtime_ns == before


def test_a_full_disk_keeps_the_old_text_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    write_text(file, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(WorldError, match="No space left on device"):
        write_text(file, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert file.read_text() == "old"


def _fill_and_interrupt(final: Path) -> None:
    with new_folder(final) as folder:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "1"
    with pytest.raises(KeyboardInterrupt):
        _fill_and_interrupt(final)
    assert list(tmp_path.iterdir()) == []
    with new_folder(final) as folder:
        (folder / "whole").write_text("x")
        assert not final.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (final / "whole").read_text() == "x"


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorldError, match="cannot write"):
        write_text(tmp_path / "file" / "below", "y")
