"""Objects under a URL `s3://bucket/...` or `gs://bucket/...`: the one door to fsspec.

`s3://http://host:9000/bucket/...` names an S3 server of one's own, as Triton writes it. Keys and
certificates come from where the clients of these stores look: AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_ENDPOINT_URL, AWS_CA_BUNDLE, GOOGLE_APPLICATION_CREDENTIALS and the like.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mmctl.errors import InputError, WorldError, missing_extra

T = TypeVar("T")

AT_ONCE = 16
"""Requests that are under way at the same time."""

_URL = re.compile(
    r"(?P<scheme>s3|gs)://"
    r"((?P<protocol>https?://)?(?P<host>[A-Za-z0-9.-]+:\d+)/)?"
    r"(?P<place>[\w.-]+(/[\w.-]+)+)/?"
)


def is_url(repository: str) -> bool:
    return "://" in repository


@dataclass(frozen=True, slots=True)
class Address:
    """`place` is bucket and prefix; `endpoint` the URL of a server of one's own, empty else."""

    scheme: str
    place: str
    endpoint: str = ""


def read_url(url: str, *, where: str = "repository") -> Address:
    """Raises InputError for what is no place that a tree could be in."""
    found = _URL.fullmatch(url)
    if found is None or (found["host"] and found["scheme"] != "s3"):
        raise InputError(
            f"{where}: `{url}` is no place for a model repository",
            hint="write `s3://BUCKET/FOLDER`, `s3://https://HOST:PORT/BUCKET/FOLDER` or "
            "`gs://BUCKET/FOLDER`; what mmctl keeps lies beside the folder",
        )
    # Without a protocol Triton takes http.
    endpoint = f"{found['protocol'] or 'http://'}{found['host']}" if found["host"] else ""
    return Address(found["scheme"], found["place"], endpoint)


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its size, and the second of the store's clock in which it was written."""

    bytes: int
    second: int


class Store:
    """All of a store, by path from the bucket on. Raises WorldError when it does not do as asked.

    A write is whole or not at all, and whoever reads later sees it: S3 and GCS both promise that.
    """

    def __init__(self, address: Address) -> None:
        """Asks nothing yet. Raises InputError when the extra for it is not installed."""
        try:
            import fsspec

            self._fs: Any = fsspec.filesystem(
                address.scheme,
                use_listings_cache=False,
                skip_instance_cache=True,
                **({"endpoint_url": address.endpoint} if address.endpoint else {}),
            )
        except ImportError:
            raise missing_extra(f"a tree in {address.scheme}://", address.scheme) from None
        self._scheme = address.scheme

    def url(self, path: str) -> str:
        return f"{self._scheme}://{path}"

    def path_of(self, url: str) -> str | None:
        """The reverse of `url`; None for a path of this machine."""
        return url.removeprefix(f"{self._scheme}://") if is_url(url) else None

    def list(self, folder: str) -> dict[str, Stored]:
        """All objects below a folder, by path inside it."""
        with self._asking(folder):
            found: Mapping[str, Any] = self._fs.find(folder, detail=True)
        return {
            path.removeprefix(f"{folder}/"): Stored(info["size"], _second(info))
            for path, info in found.items()
            if path.startswith(f"{folder}/") and not path.endswith("/")
        }

    def read(self, path: str) -> bytes | None:
        """None when there is no such object."""
        with self._asking(path):
            try:
                return bytes(self._fs.cat_file(path))
            except FileNotFoundError:
                return None

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Those of them that are there."""
        paths = list(paths)
        return {
            path: content
            for path, content in zip(paths, _each(self.read, paths), strict=True)
            if content is not None
        }

    def sha256(self, path: str) -> str:
        with self._asking(path), self._fs.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(self, path: str, content: bytes) -> None:
        with self._asking(path):
            self._fs.pipe_file(path, content)

    def create(self, path: str, content: bytes) -> bool:
        """Write unless there is such an object; the store decides between two that try at once."""
        with self._asking(path):
            try:
                self._fs.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            except OSError:
                if not self._fs.exists(path):
                    raise
                return False
        return True

    def second(self, path: str) -> int:
        with self._asking(path):
            return int(self._fs.modified(path).timestamp())

    def upload(self, files: Mapping[str, Path]) -> None:
        """Files of this machine, by where they go to."""

        def send(path: str) -> None:
            with self._asking(path):
                self._fs.put_file(str(files[path]), path)

        _each(send, files)

    def copy(self, paths: Mapping[str, str]) -> None:
        """Objects to where they go to, inside the store."""

        def send(path: str) -> None:
            with self._asking(path):
                self._fs.cp_file(path, paths[path])

        _each(send, paths)

    def delete(self, paths: Iterable[str]) -> None:
        def remove(path: str) -> None:
            with self._asking(path), suppress(FileNotFoundError):
                self._fs.rm_file(path)

        _each(remove, paths)

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise WorldError(
                f"{self.url(path)}: {type(error).__name__}: {error}",
                hint="check address, keys and rights; mmctl takes them from where the store's own "
                "tools do",
            ) from error


def _each(do: Callable[[str], T], paths: Iterable[str]) -> list[T]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(do, paths))


def _second(info: Mapping[str, Any]) -> int:
    """S3 and GCS say it under different names."""
    return int((info.get("LastModified") or info["mtime"]).timestamp())
