"""Where a server is, and how a connection to it is encrypted. Reads the certificates, no more."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of encrypted connections, for `grpcs://` and `https://`.

    `ca` signs the servers that are trusted; without it the usual public authorities do. `cert` and
    `key` (not encrypted) say who the client is, to a server that asks for it.
    """

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InputError(
                "Tls: of `cert` and `key` only one is given",
                hint="a client proves who it is with both; leave both out where it need not",
            )

    def context(self) -> ssl.SSLContext:
        """For HTTP. Raises InputError for a file that is not there or not PEM."""
        try:
            authorities = None if self.ca is None else self._text(self.ca)
            context = ssl.create_default_context(cadata=authorities)
        except ssl.SSLError as error:
            raise _unreadable(self.ca, error.reason or "no certificate is in it") from error
        if self.cert is not None and self.key is not None:
            self._load_pair(context, self.cert, self.key)
        return context

    def grpc_parts(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authorities, key and certificate, as grpc.ssl_channel_credentials takes them. Raises as
        `context`: gRPC itself would only say later that no connection can be made.
        """
        self.context()
        ca, key, cert = (
            None if path is None else self._text(path).encode()
            for path in (self.ca, self.key, self.cert)
        )
        return ca, key, cert

    def _text(self, path: Path | str) -> str:
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(path, getattr(error, "strerror", None) or "not text") from error
        if "-----BEGIN " not in text:
            raise _unreadable(path, "nothing in it begins with `-----BEGIN `")
        return text

    def _load_pair(self, context: ssl.SSLContext, cert: Path | str, key: Path | str) -> None:
        for path in (cert, key):
            self._text(path)
        try:
            context.load_cert_chain(cert, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise InputError(
                f"Tls: {cert} and {key} do not belong together: {why}",
                hint="give a certificate and its own key, in PEM and not encrypted",
            ) from error


def _unreadable(path: Path | str | None, why: str) -> InputError:
    return InputError(f"Tls: {path} cannot be read: {why}", hint="give a file in PEM form")


@dataclass(frozen=True, slots=True)
class Address:
    """`protocol` is `grpc` or `http`, `place` is host:port, of HTTP perhaps with a path after it
    (that of a proxy). `tls` is set where the connection is encrypted.
    """

    protocol: str
    place: str
    tls: Tls | None = None


SCHEMES = {
    "": ("grpc", False),
    "grpc": ("grpc", False),
    "grpcs": ("grpc", True),
    "http": ("http", False),
    "https": ("http", True),
}
_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)"
_URL = re.compile(rf"(?:(\w+)://)?({_HOST})(:\d{{1,5}})?((?:/[\w.~%-]+)*)/?")


def parse_url(url: str, tls: Tls | None = None) -> Address:
    """`host:port` and `grpc://host:port` are gRPC, `grpcs://` is gRPC over TLS; `http://host:port`
    and `https://host/path` are HTTP. Raises InputError.
    """
    match = _URL.fullmatch(url)
    if match is None or (match[1] or "") not in SCHEMES:
        raise InputError(
            f"`{url}` is not the address of a gRPC port, nor of an HTTP one",
            hint="write `host:port` or `grpc://host:port` for gRPC (8001 by default), "
            "`http://host:port` for HTTP (8000), `grpcs://` or `https://` with TLS",
        )
    protocol, encrypted = SCHEMES[match[1] or ""]
    if protocol == "grpc" and (not match[3] or match[4]):
        raise not_grpc(url)
    if tls is not None and not encrypted:
        raise InputError(
            f"`{url}` is not encrypted, and `tls` is given",
            hint=f"write `{protocol}s://{match[2]}{match[3] or ''}`, or leave `tls` out",
        )
    return Address(
        protocol, "".join(match[n] or "" for n in (2, 3, 4)), (tls or Tls()) if encrypted else None
    )


def not_grpc(url: str) -> InputError:
    return InputError(
        f"`{url}` is not the address of a gRPC port",
        hint="write `host:port` or `grpc://host:port`; Triton's gRPC port is 8001 by default",
    )
