"""Addresses of every form, and TLS files that are wrong before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from mmctl.client.tls import Address, Tls, parse_url
from mmctl.errors import InputError

TLS = Tls()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("127.0.0.1:8001", Address("grpc", "127.0.0.1:8001")),
        ("grpc://triton.example.org:8001/", Address("grpc", "triton.example.org:8001")),
        ("grpcs://[::1]:8001", Address("grpc", "[::1]:8001", TLS)),
        ("http://127.0.0.1:8000", Address("http", "127.0.0.1:8000")),
        ("https://example.org", Address("http", "example.org", TLS)),
        ("https://example.org/triton/a/", Address("http", "example.org/triton/a", TLS)),
    ],
)
def test_a_url_says_protocol_place_and_encryption(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "is not the address of a gRPC port, nor of an HTTP one"),
        ("ftp://a:1", "nor of an HTTP one"),
        ("http://a:1?b", "nor of an HTTP one"),
        ("localhost", "is not the address of a gRPC port"),
        ("grpcs://localhost", "is not the address of a gRPC port"),
        ("localhost:8001/v2", "is not the address of a gRPC port"),
    ],
)
def test_what_is_no_address_is_refused(url: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_url(url)


@pytest.mark.parametrize("url", ["a:1", "grpc://a:1", "http://a:1"])
def test_certificates_for_a_connection_that_is_not_encrypted_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not encrypted, and `tls` is given") as caught:
        parse_url(url, Tls(ca="ca.pem"))
    assert "s://a:1" in str(caught.value.hint)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("one", "other"):
        pair = ca.issue_cert("127.0.0.1")
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        pair.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "note.txt").write_text("hello")
    (folder / "binary.pem").write_bytes(b"\xff\x00")
    (folder / "empty.pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    return folder


def test_good_files_make_a_connection(files: Path) -> None:
    tls = Tls(files / "ca.pem", str(files / "one.pem"), files / "one.key")
    assert len(tls.context().get_ca_certs()) == 1
    ca, key, cert = tls.grpc_parts()
    assert ca == (files / "ca.pem").read_bytes()
    assert key == (files / "one.key").read_bytes()
    assert cert == (files / "one.pem").read_bytes()
    assert TLS.grpc_parts() == (None, None, None)
    assert TLS.context().get_ca_certs() or TLS.context().cert_store_stats()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(lambda at: Tls(at / "none.pem"), "none.pem cannot be read: No such", id="ca"),
        pytest.param(Tls, "cannot be read: Is a directory", id="a folder"),
        pytest.param(lambda at: Tls(at / "note.txt"), "nothing in it begins", id="not PEM"),
        pytest.param(lambda at: Tls(at / "binary.pem"), "binary.pem cannot be read", id="binary"),
        pytest.param(lambda at: Tls(at / "empty.pem"), "empty.pem cannot be read", id="empty"),
        pytest.param(
            lambda at: Tls(None, at / "one.pem", at / "other.key"),
            "do not belong together: KEY_VALUES_MISMATCH",
            id="another's key",
        ),
        pytest.param(
            lambda at: Tls(None, at / "one.pem", at / "none.key"), "none.key cannot", id="no key"
        ),
    ],
)
def test_wrong_files_are_told_by_name(files: Path, make: Callable[[Path], Tls], text: str) -> None:
    with pytest.raises(InputError, match=text):
        make(files).grpc_parts()


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(InputError, match="of `cert` and `key` only one"):
        Tls(cert="one.pem")
