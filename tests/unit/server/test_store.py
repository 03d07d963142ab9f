"""A Valkey that mmctl starts: for this machine, for its owner, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cache_servers import running_store, store_program

from mmctl.cache.stores.redis import SharedStore
from mmctl.errors import InputError, WorldError
from mmctl.server import store as store_module
from mmctl.server.guard import processes_with
from mmctl.server.store import EmbeddedStore, find_program

STARTS_ONE = """
import sys, time
from pathlib import Path
from mmctl.server.store import EmbeddedStore
store = EmbeddedStore.start(Path(sys.argv[1]))
print(store.url, flush=True)
time.sleep(60)
"""


def wait_until_gone(word: str) -> None:
    limit = time.monotonic() + 10
    while processes_with(word):
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_it_answers_within_a_second_and_is_gone_with_its_block(tmp_path: Path) -> None:
    began = time.monotonic()
    with running_store(tmp_path) as store:
        assert time.monotonic() - began < 1.0
        assert SharedStore(store.url).run(("PING",)) == [b"PONG"]
        assert store.pid is not None
        assert store.alive
    assert not store.alive
    assert processes_with(str(tmp_path)) == []


def test_it_listens_on_loopback_wants_its_password_and_keeps_nothing(tmp_path: Path) -> None:
    with running_store(tmp_path) as store:
        wanted = ("bind", "save", "appendonly", "maxmemory", "maxmemory-policy")
        replies = SharedStore(store.url).run(*(("CONFIG", "GET", name) for name in wanted))
        assert {reply[0].decode(): reply[1].decode() for reply in replies} == {
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "maxmemory": str(store_module.MAX_BYTES),
            "maxmemory-policy": "volatile-lru",
        }
        port = int(store.url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"PING\r\n")
            assert stranger.recv(64).startswith(b"-NOAUTH")
    config = tmp_path / "store.conf"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.conf", "store.log"]


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    store_program("valkey")
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE, str(tmp_path / "store.log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    store = SharedStore(parent.stdout.readline().strip())
    assert store.run(("PING",)) == [b"PONG"]
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_until_gone(str(tmp_path))


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with running_store(tmp_path / "one") as store:
        port = int(store.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(WorldError, match=f"port {port} of 127.0.0.1 cannot be used for store"):
            EmbeddedStore.start(tmp_path / "two.log", port=port)


def test_a_program_that_does_not_start_says_why(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho no room for me\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(WorldError, match="the store does not start: no room for me"):
        EmbeddedStore.start(tmp_path / "store.log", program=program)
    assert processes_with(str(tmp_path)) == []


def test_without_a_program_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="needs the `store` extra"):
        find_program()
