"""Fixtures that every kind of test may use."""

import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from s3_server import ACCESS, s3_server

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


def pytest_configure() -> None:
    """Interrupts work in tests and in what they start, also where a shell runs all of this in the
    background and has switched them off.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


ROOMS = ("unit", "contract", "cli", "exports", "live")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first; what a later room needs is built by an earlier one."""
    items.sort(key=lambda item: _room(item.path))


def _room(path: Path) -> int:
    parts = path.relative_to(ROOT / "tests").parts
    return ROOMS.index(parts[0]) if parts[0] in ROOMS else 0


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


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace."""
    (tmp_path / "mmctl.yaml").write_text("targets: {}\n")
    return tmp_path
