"""The Triton of a target, over gRPC; the embedded one also tells why, and is started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mmctl.client.requests import readable, request_for
from mmctl.client.samples import Sample, compare, naming
from mmctl.client.status import Counts, IndexEntry
from mmctl.client.tls import Tls
from mmctl.client.transport import GrpcTransport
from mmctl.errors import InferenceError, InputError
from mmctl.server.access import grpc_headers
from mmctl.server.detach import serve_detached
from mmctl.server.info import EMBEDDED, ServerInfo, log_path, read_server
from mmctl.server.log import find_reason
from mmctl.tensors import Array
from mmctl.workspace import Workspace

Say = Callable[[str], None]

LOAD_TIMEOUT_S = 900.0
GOLDEN_TIMEOUT_S = 60.0
DEATH_S = 20.0


class GrpcServer:
    """Any Triton that lets us steer it: `headers` go with every call."""

    def __init__(self, address: str, headers: Mapping[str, str], tls: Tls | None = None) -> None:
        self._transport = GrpcTransport(address, headers, tls)

    @property
    def name(self) -> str:
        return self._transport.address

    @property
    def version(self) -> str:
        """Triton's own, `2.51.0`."""
        return self._transport.version()

    @property
    def run(self) -> str:
        return ""

    @property
    def bls_threads(self) -> int | None:
        return None

    def close(self) -> None:
        self._transport.close()

    def index(self) -> tuple[IndexEntry, ...]:
        return self._transport.index()

    def load(self, model: str) -> None:
        self._transport.load(model, LOAD_TIMEOUT_S)

    def unload(self, model: str) -> None:
        self._transport.unload(model, LOAD_TIMEOUT_S)

    def counts(self, model: str) -> Counts:
        return self._transport.counts(model)

    def answer(self, model: str, sample: Sample) -> Mapping[str, Array]:
        signature = self._transport.signature(model)
        with naming(sample):
            request = request_for(model, sample.inputs, signature)
        return readable(self._transport.infer(request, GOLDEN_TIMEOUT_S)).outputs

    def differences(self, model: str, sample: Sample) -> list[str]:
        return compare(self.answer(model, sample), sample.expect)

    def revive(self) -> bool:
        return False


class EmbeddedServer(GrpcServer):
    """The running embedded server of a workspace."""

    def __init__(self, workspace: Workspace, info: ServerInfo, say: Say) -> None:
        super().__init__(info.grpc, grpc_headers(info.key))
        self._workspace, self._info, self._say = workspace, info, say
        self._log = log_path(workspace.state, EMBEDDED)

    @property
    def run(self) -> str:
        return f"{self._info.pid} {self._info.started}"

    @property
    def bls_threads(self) -> int | None:
        return self._info.bls_threads

    def load(self, model: str) -> None:
        said_before = _size(self._log)
        try:
            super().load(model)
        except InferenceError as error:
            said = _read(self._log, said_before)
            raise InferenceError(find_reason(model, said) or error.message) from error

    def revive(self) -> bool:
        """On the same ports, in the background; False when it lives, or cannot be started."""
        deadline = time.monotonic() + DEATH_S
        while read_server(self._workspace.state, EMBEDDED) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        ports = [
            f"--{name}={getattr(self._info, name).rpartition(':')[2]}"
            for name in ("http", "grpc", "metrics")
        ]
        self._say("Triton has died; it is started again")
        arguments = ["-C", str(self._workspace.root), "serve", "--json", *ports]
        answer = serve_detached(arguments, self._log.with_suffix(".out"), self._say)
        info = read_server(self._workspace.state, EMBEDDED)
        if isinstance(answer, int) or info is None:
            return False
        self.close()
        self._info = info
        self._transport = GrpcTransport(info.grpc, grpc_headers(info.key))
        return True


def embedded_server(workspace: Workspace, say: Say) -> EmbeddedServer:
    """The running one. Raises InputError when there is none, or it serves another tree."""
    info = read_server(workspace.state, EMBEDDED)
    if info is None:
        raise InputError(
            "no embedded server runs, so there is nothing to deploy to",
            hint="start one with `mmctl serve --detach`",
        )
    if Path(info.served) != workspace.served(EMBEDDED).resolve():
        raise InputError(
            f"the running server serves {info.served}, which is not mmctl's to change",
            hint="start one without `--tree`",
        )
    return EmbeddedServer(workspace, info, say)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _read(path: Path, offset: int) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().decode(errors="replace")
