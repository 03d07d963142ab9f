"""Fixtures that every kind of test may use."""

import fcntl
import re
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import skips
from cache_servers import running_store
from gs_server import gs_server
from s3_server import ACCESS, s3_server

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Interrupts work in tests and in what they start, also where a shell runs all of this in the
    background and has switched them off.
    """
    config.pluginmanager.register(skips)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


ROOMS = ("unit", "contract", "cli", "exports", "live")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first; what a later room needs is built by an earlier one.

    Where several processes share the work the long ones begin, so that all end together; those
    that run alone come last.
    """
    items.sort(key=lambda item: _room(item.path))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (_is_alone(item), _room(item.path) != ROOMS.index("exports")))


def _room(path: Path) -> int:
    parts = path.relative_to(ROOT / "tests").parts
    return ROOMS.index(parts[0]) if parts[0] in ROOMS else 0


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a file run in one process. Files that watch the clock all run in the same one, lest
    those of two such files take turns: what a fixture has measured would be old by then.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "alone" if _watches_the_clock(ROOT / file) else file

    return ByFile(config, log)


@cache
def _watches_the_clock(path: Path) -> bool:
    """By its text: who shares out the work has not read the marks."""
    return re.search(r"^pytestmark = .*\.alone\b", path.read_text(), re.MULTILINE) is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that watches the clock runs while no other does, in any of the processes."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid")
    if run is None:
        return (yield)
    with _turn(Path(tempfile.gettempdir()) / f"mmctl-tests-{run}", alone=_is_alone(item)):
        return (yield)


@contextmanager
def _turn(path: Path, *, alone: bool) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process that the test has left may hold the file


def pytest_unconfigure(config: pytest.Config) -> None:
    run = getattr(config, "workerinput", {}).get("testrunuid")
    if run is not None:
        (Path(tempfile.gettempdir()) / f"mmctl-tests-{run}").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Test data beside the checkout that is too large, or not ours, to commit."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the data folder beside the checkout does not exist")
    return folder


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """host:port of an S3 server with an empty bucket `bucket`, and the keys to it in the
    environment.
    """
    for package in ("moto", "s3fs", "flask_cors"):
        pytest.importorskip(package)
    with s3_server() as address, pytest.MonkeyPatch.context() as patch:
        for name, value in ACCESS.items():
            patch.setenv(name, value)
        urlopen(Request(f"http://{address}/bucket", method="PUT")).close()
        yield address


@pytest.fixture(scope="session")
def gs_address() -> Iterator[str]:
    """host:port of an emulator of Google's store with an empty bucket `bucket`."""
    with pytest.MonkeyPatch.context() as patch:
        # It is asked what kind of bucket this is, over TLS, which no emulator has.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        for package in ("gcsfs", "gcp_storage_emulator"):
            pytest.importorskip(package)
        with gs_server() as address:
            patch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
            yield address


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Valkey that all tests share: names in it are the test's own."""
    with running_store(tmp_path_factory.mktemp("store")) as store:
        yield store.url


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace."""
    (tmp_path / "mmctl.yaml").write_text("targets: {}\n")
    return tmp_path
