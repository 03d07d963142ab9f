"""What surrounds a server: ports, its file, its log, its supervisor, its stubs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from clocks import eventually

from mmctl.errors import InputError, WorldError
from mmctl.server.crash import crash
from mmctl.server.guard import Guard, processes_with
from mmctl.server.info import ServerInfo, info_path, read_server, stop_server, write_server
from mmctl.server.launch import Launch
from mmctl.server.logs import read_end
from mmctl.server.place import make_place, model_folders, models_with_warm_up
from mmctl.server.ports import HOST, reserved
from mmctl.server.stubs import Budget, Stub, parse_stub
from mmctl.server.wheel import remove_abandoned_regions

# ------------------------------------------------------------------------ ports


def test_any_ports_differ_and_can_be_taken_over_while_they_are_reserved() -> None:
    with reserved([("http", 0), ("grpc", 0)]) as (one, other):
        assert one != other
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((HOST, one))
            server.listen()


def test_a_port_in_use_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        reserving = reserved([("http", 0), ("grpc", port)])
        with pytest.raises(WorldError, match=f"port {port} .* grpc: Address already in") as error:
            reserving.__enter__()
    assert error.value.hint is not None
    assert "--grpc N" in error.value.hint


# ------------------------------------------------------------------------ its file and its log


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a supervisor and ends when it is asked to."""
    code = "import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", code, "supervisor.py"]) as process:
        eventually(lambda: process.pid in processes_with("supervisor.py"))
        yield process
        process.kill()


def info_of(pid: int) -> ServerInfo:
    return ServerInfo(pid, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "", "/tree", "24.10", "now")


def test_a_running_server_is_found_by_its_target(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    write_server(tmp_path, "embedded", info_of(supervisor.pid))
    assert read_server(tmp_path, "embedded") == info_of(supervisor.pid)
    assert read_server(tmp_path, "other") is None


def test_a_stopped_server_is_found_no_more(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    write_server(tmp_path, "embedded", info_of(supervisor.pid))
    stop_server(info_of(supervisor.pid))
    assert read_server(tmp_path, "embedded") is None
    assert not info_path(tmp_path, "embedded").exists()


def test_a_process_that_got_the_number_of_a_dead_server_is_not_taken_for_it(tmp_path: Path) -> None:
    write_server(tmp_path, "embedded", info_of(os.getpid()))
    assert read_server(tmp_path, "embedded") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}'])
def test_a_file_that_cannot_be_read_tells_of_no_server(tmp_path: Path, text: str) -> None:
    info_path(tmp_path, "embedded").parent.mkdir()
    info_path(tmp_path, "embedded").write_text(text)
    assert read_server(tmp_path, "embedded") is None


def test_a_target_has_one_server(tmp_path: Path, supervisor: subprocess.Popen[bytes]) -> None:
    write_server(tmp_path, "embedded", info_of(supervisor.pid))
    with pytest.raises(InputError, match="already runs"):
        make_place(tmp_path, tmp_path, "embedded", private=False)
    make_place(tmp_path, tmp_path, "embedded", private=True)


def test_the_log_of_the_server_before_is_kept(tmp_path: Path) -> None:
    make_place(tmp_path, tmp_path, "embedded", private=False).log.write_text("old")
    log = make_place(tmp_path, tmp_path, "embedded", private=False).log
    assert not log.exists()
    assert log.with_name("embedded.log.1").read_text() == "old"


def test_logs_of_dead_private_servers_are_cleared_away(tmp_path: Path) -> None:
    log = make_place(tmp_path, tmp_path, "embedded", private=True).log
    log.write_text("ours")
    dead = log.with_name(f"private-{2**22 + 1}-1.log")
    dead.write_text("theirs")
    make_place(tmp_path, tmp_path, "embedded", private=True)
    assert (log.exists(), dead.exists()) == (True, False)


def test_a_state_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "servers").write_text("a file where the folder should be")
    with pytest.raises(WorldError, match="cannot write"):
        make_place(tmp_path, tmp_path, "embedded", private=False)


def test_the_models_of_a_tree_are_its_folders(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").touch()
    assert model_folders(tmp_path) == ("a", "b")


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1\n2\n3\n")
    assert read_end(tmp_path / "log", 2) == ["2", "3"]
    assert read_end(tmp_path / "log", 0) == []
    with pytest.raises(InputError, match="no such log"):
        read_end(tmp_path / "none", 2)


# ------------------------------------------------------------------------ its supervisor


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Callable[..., Guard]]:
    """Runs a shell script as if it were Triton; its prefix is `mmctl_test_<pid>`."""
    guards: list[Guard] = []

    def start(script: str, grace_s: float = 5.0, cleanup: Sequence[str] = ()) -> Guard:
        argv = ("sh", "-c", script, prefix())
        launch = Launch(argv, {"COLOUR": "red"}, "24.10", prefix(), tuple(cleanup))
        guards.append(Guard(launch, tmp_path / "log", tmp_path / "state.json", grace_s))
        return guards[-1]

    yield start
    for guard in guards:
        guard.end(at_once=True)
    assert processes_with(prefix()) == []
    assert not list(Path("/dev/shm").glob(f"{prefix()}*"))


def prefix() -> str:
    return f"mmctl_test_{os.getpid()}_"


def test_what_the_server_writes_goes_to_its_log_and_its_variables_are_set(
    guarded: Callable[..., Guard], tmp_path: Path
) -> None:
    assert guarded("echo $COLOUR; echo problem >&2").code == 0
    assert (tmp_path / "log").read_text() == "red\nproblem\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 7", 7, id="its exit code"),
        pytest.param("kill -SEGV $$", 128 + signal.SIGSEGV, id="its signal"),
        pytest.param("exec /no/such/program", 127, id="not there"),
    ],
)
def test_the_supervisor_ends_as_its_server_did(
    guarded: Callable[..., Guard], script: str, code: int
) -> None:
    assert guarded(script).code == code


def test_a_server_that_died_takes_all_it_left_with_it(
    guarded: Callable[..., Guard], tmp_path: Path
) -> None:
    (tmp_path / "state.json").write_text("{}")
    left = f"setsid sh -c 'sleep 60; : {prefix()}' & touch /dev/shm/{prefix()}region; kill -9 $$"
    guard = guarded(left, cleanup=["touch", str(tmp_path / "cleaned")])
    assert guard.code == 128 + signal.SIGKILL
    assert processes_with(prefix()) == []
    assert not Path(f"/dev/shm/{prefix()}region").exists()
    assert not (tmp_path / "state.json").exists()
    assert (tmp_path / "cleaned").exists()


def test_a_server_has_time_to_end_and_that_is_no_crash(
    guarded: Callable[..., Guard], tmp_path: Path
) -> None:
    guard = guarded(
        f"trap 'echo bye; exit 3' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    )
    eventually((tmp_path / "up").exists)
    guard.end()
    assert guard.code == 0
    assert (tmp_path / "log").read_text() == "bye\n"


@pytest.mark.parametrize(
    ("grace_s", "at_once"),
    [
        pytest.param(0.0, False, id="that gets no time"),
        pytest.param(60.0, True, id="that is ended at once"),
        pytest.param(0.2, False, id="that does not use its time"),
    ],
)
def test_a_server_is_killed(
    guarded: Callable[..., Guard], tmp_path: Path, grace_s: float, at_once: bool
) -> None:
    script = f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    guard = guarded(script, grace_s)
    eventually((tmp_path / "up").exists)
    begin = time.monotonic()
    guard.end(at_once=at_once)
    assert time.monotonic() - begin < 5
    assert processes_with(prefix()) == []


def test_a_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = f"""
import json, sys, time
from pathlib import Path
from mmctl.server.guard import Guard
from mmctl.server.launch import Launch
argv = ("sh", "-c", "touch {tmp_path}/up; sleep 60", "{prefix()}")
Guard(Launch(argv, {{}}, "24.10", "{prefix()}"), Path("{tmp_path}/log"), None, 5.0)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", starter]) as process:
        eventually((tmp_path / "up").exists)
        process.kill()
    eventually(lambda: processes_with(prefix()) == [])


def test_shared_memory_of_the_dead_is_found_by_the_number_of_its_starter(tmp_path: Path) -> None:
    dead, living = f"mmctl_{2**22 + 1}_ab_x", f"mmctl_{os.getpid()}_ab_x"
    for name in (dead, living, "triton_python_backend_shm_region_x"):
        (tmp_path / name).touch()
    remove_abandoned_regions(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        living,
        "triton_python_backend_shm_region_x",
    }


# ------------------------------------------------------------------------ its end, its stubs


def test_a_crash_names_the_model_at_fault(tmp_path: Path) -> None:
    loading = 'I1130 22:22:46.345554 11065 model_lifecycle.cc:472] "loading: fatal:1"\n'
    error = crash(139, loading, tmp_path / "log")
    assert error.message == "Triton died of SIGSEGV while it loaded `fatal` (exit code 139)"
    assert error.hint is not None
    assert str(tmp_path / "log") in error.hint
    after = crash(134, "", tmp_path / "log", stubs=["first", "last"])
    assert (
        after.message == "Triton died of SIGABRT after a process of `last` had died (exit code 134)"
    )


def test_of_models_that_load_together_those_with_a_warm_up_are_at_fault(tmp_path: Path) -> None:
    line = 'I1130 22:22:46.345554 11065 model_lifecycle.cc:472] "loading: {}:1"\n'
    log = line.format("plain") + line.format("warm")
    assert "loaded `warm` (" in crash(139, log, tmp_path, warmed=["warm", "other"]).message
    assert "loaded `plain`, `warm` (" in crash(139, log, tmp_path, warmed=["other"]).message


def test_a_warm_up_is_seen_in_any_config_of_a_model(tmp_path: Path) -> None:
    for name in ("plain", "warm", "warm_on_gpu", "foreign"):
        (tmp_path / name / "configs").mkdir(parents=True)
    (tmp_path / "plain" / "config.pbtxt").write_text('name: "plain"')
    (tmp_path / "warm" / "config.pbtxt").write_text("model_warmup [{}]")
    (tmp_path / "warm_on_gpu" / "configs" / "gpu.pbtxt").write_text("model_warmup [{}]")
    assert models_with_warm_up(tmp_path) == ("warm", "warm_on_gpu")


def test_a_stub_is_known_by_its_command_line() -> None:
    words = ["/b/triton_python_backend_stub", "/tree/echo/2/model.py", "region"]
    words += ["1048576", "1048576", "77", "/b/python", "336", "echo_0_1", "DEFAULT", ""]
    assert parse_stub("\0".join(words).encode()) == Stub("echo", "2", "echo_0_1")
    assert parse_stub(b"/bin/sh\0-c\0true\0") is None
    assert parse_stub(b"") is None  # it has ended


def test_a_model_is_reloaded_three_times_a_minute_at_most() -> None:
    budget = Budget()
    assert [budget.take("a", now) for now in (0.0, 1.0, 2.0, 3.0)] == [True, True, True, False]
    assert budget.take("b", 3.0), "another model has its own"
    assert budget.take("a", 60.0), "the first is a minute ago"
    assert not budget.take("a", 60.5)


def test_info_is_what_other_commands_read(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    write_server(tmp_path, "embedded", info_of(supervisor.pid))
    keys = json.loads(info_path(tmp_path, "embedded").read_text())
    shown = {"pid", "http", "grpc", "metrics", "otlp", "served", "release", "started"}
    shown |= {"bls_threads", "store"}
    assert set(keys) == shown | {"key"}
    assert set(info_of(1).shown) == shown


def test_the_key_of_a_server_is_for_its_owner_alone(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    info = replace(info_of(supervisor.pid), key="open sesame")
    write_server(tmp_path, "embedded", info)
    assert info_path(tmp_path, "embedded").stat().st_mode & 0o777 == 0o600
    assert read_server(tmp_path, "embedded") == info
    assert "sesame" not in f"{info} {info.shown}"
