"""Locks and version numbers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.errors import InputError
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.repository import (
    LOCK,
    Lock,
    history_with,
    is_foreign,
    is_generated,
    read_lock,
    render_lock,
    render_marker,
    version_for,
)

LOCKED = Lock(
    version=2,
    build_key="b",
    signature=Signature(
        (TensorSpec("x", parse_type("int64[-1]")),), (TensorSpec("y", parse_type("fp32")),), 1
    ),
    files={"model.onnx": "0" * 64},
    evidence=({"gate": "parity", "worst": 1e-7},),
    history=((1, "a"), (2, "b")),
)


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(render_lock(LOCKED))
    assert read_lock(tmp_path) == LOCKED


def test_a_broken_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text('{"schema": 99}')
    with pytest.raises(InputError, match=r"model\.lock: not a lock"):
        read_lock(tmp_path)


def test_the_same_key_has_the_same_number_and_a_new_one_the_next() -> None:
    assert version_for(None, "x") == 1
    assert version_for(LOCKED, "b") == 2
    assert version_for(LOCKED, "a") == 1
    assert version_for(LOCKED, "c") == 3


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_a_number_never_stands_for_two_keys(keys: list[str]) -> None:
    lock: Lock | None = None
    seen: dict[int, str] = {}
    for key in keys:
        version = version_for(lock, key)
        assert seen.setdefault(version, key) == key
        lock = Lock(version, key, LOCKED.signature, {}, history=history_with(lock, version, key))
        assert lock.history[-1] == (version, key)


def test_a_folder_with_only_a_config_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text("")
    assert is_foreign(tmp_path)
    (tmp_path / ".mmctl.json").write_text(render_marker("ensembles/p/pipeline.yaml"))
    assert not is_foreign(tmp_path)
    assert is_generated(tmp_path)
