"""Files of sources: beside model.yaml, and from an https address."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mmctl.errors import InputError, WorldError
from mmctl.exporters.base import Place
from mmctl.exporters.resources import locate_file, own_files
from mmctl.workspace import read_workspace

WEIGHTS = b"weights" * 1000
HASH = sha256(WEIGHTS).hexdigest()


@pytest.fixture
def place(workspace: Path) -> Place:
    (workspace / "model_repository" / "net").mkdir(parents=True)
    return Place(read_workspace(workspace), "net")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1, with its key, that nobody else trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("ab") as both:
        both.write(file.with_suffix(".crt").read_bytes())
    return file


@pytest.fixture
def server(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    """Serves net.onnx over https; its certificate is trusted here."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "net.onnx").write_bytes(WEIGHTS)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=files)) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def address(server: ThreadingHTTPServer, file: str = "net.onnx") -> str:
    return f"https://127.0.0.1:{server.server_port}/{file}"


def test_a_file_is_downloaded_once_and_kept_by_its_hash(
    place: Place, server: ThreadingHTTPServer
) -> None:
    said: list[str] = []
    found = locate_file(place, address(server), HASH, said.append)
    assert found.read_bytes() == WEIGHTS
    assert said == [f"net: downloading {address(server)}"]
    assert locate_file(place, "https://127.0.0.1:1/gone.onnx", HASH, said.append) == found
    assert len(said) == 1


@pytest.mark.parametrize(
    ("file", "digest", "kind", "said"),
    [
        pytest.param(
            "net.onnx",
            "0" * 64,
            InputError,
            f"has sha256 {HASH}, model.yaml says 0",
            id="wrong hash",
        ),
        pytest.param("no.onnx", HASH, WorldError, "cannot download .*404", id="no such file"),
    ],
)
def test_what_is_not_the_declared_file_is_not_kept(
    place: Place, server: ThreadingHTTPServer, *, file: str, digest: str, kind: type, said: str
) -> None:
    with pytest.raises(kind, match=said):
        locate_file(place, address(server, file), digest, lambda _line: None)
    assert list((place.workspace.state / "downloads").iterdir()) == []


def test_a_server_that_nobody_vouches_for_is_not_asked(
    place: Place, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    with pytest.raises(WorldError, match="CERTIFICATE_VERIFY_FAILED"):
        locate_file(place, address(server), HASH, lambda _line: None)


def test_own_files_are_what_people_wrote(place: Place) -> None:
    paths = ["source.py", "lib/parts.py", "lib/__pycache__/parts.pyc", "README.md", ".hidden"]
    paths += ["model.yaml", "model.lock", "config.pbtxt", "configs/gpu.pbtxt", "3/model.onnx"]
    for path in paths:
        file = place.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert list(own_files(place)) == ["lib/parts.py", "source.py"]
