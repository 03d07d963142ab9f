"""What a gRPC status means to the user: one row per code. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mmctl.diagnostics import nearest
from mmctl.errors import InferenceError, InputError, LateError, MmctlError, WorldError


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that brought no answer. `details` is the server's text, or gRPC's own."""

    code: str
    details: str
    where: str
    address: str
    timeout_s: float | None = None
    protocol: str = "grpc"


class NotServedError(InferenceError):
    """Triton does not answer for this model or version now."""


class NobodyThereError(WorldError):
    """No Triton answers at an address. `may_have_run`: the connection broke when the request was
    under way, so that the model may have seen it; otherwise it surely has not.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, may_have_run: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.may_have_run = may_have_run


class NotFoundError(NotServedError):
    """Triton does not serve this model or version."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A model version as the server's repository index has it; all but `model` may be empty."""

    model: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has counted of a model since it was loaded. `requests` has those that failed,
    `total_ns` is the time of all that did not.
    """

    requests: int = 0
    failed: int = 0
    total_ns: int = 0

    @property
    def mean_ms(self) -> float | None:
        answered = self.requests - self.failed
        return self.total_ns / answered / 1e6 if answered else None

    def goes_on(self, earlier: Counts) -> bool:
        """False where something is less than it was: the counting has begun anew."""
        return (
            self.requests >= earlier.requests
            and self.failed >= earlier.failed
            and self.total_ns >= earlier.total_ns
        )

    def since(self, earlier: Counts) -> Counts:
        """What came after `earlier`, of which these have gone on."""
        return Counts(
            self.requests - earlier.requests,
            self.failed - earlier.failed,
            self.total_ns - earlier.total_ns,
        )


def error_of(failure: Failure) -> WorldError:
    return STATUSES[failure.code](failure)


def unknown_model(
    model: str,
    version: str,
    address: str,
    index: Sequence[IndexEntry],
    *,
    only_loaded: bool = False,
) -> MmctlError:
    """Why the server does not know a model: no such name, no such version, or not loaded.

    `only_loaded`: the index leaves out what is not.
    """
    loaded = " is loaded" if only_loaded else ""
    entries = [entry for entry in index if entry.model == model]
    if not entries:
        return InputError(
            f"{address}: no model `{model}`{loaded}", hint=nearest(model, (e.model for e in index))
        )
    ready = [entry.version for entry in entries if entry.state == "READY"]
    if ready:
        return InputError(
            f"model `{model}` has no version `{version}`",
            hint=f"take one that is served: {', '.join(ready)}",
        )
    reasons = {entry.reason or entry.state.lower() for entry in entries} - {""}
    return WorldError(
        f"model `{model}` is not ready: {'; '.join(sorted(reasons)) or 'not loaded'}",
        hint="read the server's log for the cause",
    )


def _answered(failure: Failure) -> WorldError:
    """Triton's own words, whole."""
    return InferenceError(f"{failure.where}: {failure.details}")


def _wrong(failure: Failure) -> WorldError:
    """The same request would be refused again."""
    return InferenceError(f"{failure.where}: {failure.details}", final=True)


def _not_found(failure: Failure) -> WorldError:
    return NotFoundError(f"{failure.where}: {failure.details}")


def _unavailable(failure: Failure) -> WorldError:
    """Triton says UNAVAILABLE for a full queue, gRPC says it when nobody is there."""
    never_ran = _NEVER_SENT.search(failure.details) is not None
    if not never_ran and not _BROKEN.search(failure.details):
        return NotServedError(f"{failure.where}: {failure.details}")
    return NobodyThereError(
        f"{failure.address}: no Triton answers: {failure.details}",
        hint=_CHECK_TLS if _TLS.search(failure.details) else _CHECK_ADDRESS[failure.protocol],
        may_have_run=not never_ran,
    )


def _late(failure: Failure) -> WorldError:
    limit = "in time" if failure.timeout_s is None else f"within {failure.timeout_s:g} s"
    return LateError(
        f"{failure.where}: no answer {limit}",
        hint="allow more time; the server may still be working on the request",
    )


def _exhausted(failure: Failure) -> WorldError:
    if "larger than max" not in failure.details:
        return _answered(failure)
    return InferenceError(
        f"{failure.where}: {failure.details}",
        hint="send fewer rows in one request; a limit of 4 MB is that of a proxy on the way",
    )


def _forbidden(failure: Failure) -> WorldError:
    return InferenceError(
        f"{failure.where}: {failure.details}", hint="pass the headers that this server asks for"
    )


def _unimplemented(failure: Failure) -> WorldError:
    return InferenceError(
        f"{failure.where}: {failure.details}",
        hint=f"check that {failure.address} is a Triton, and that its release knows this call",
    )


_NEVER_SENT = re.compile(
    r"failed to connect|connection refused|resolv|resolution|unreachable|no route"
    # What Triton itself says of new requests when it is on its way out.
    r"|server is stopping|server not ready|server is exiting",
    re.IGNORECASE,
)
_BROKEN = re.compile(
    r"connection (reset|timed out|closed)|socket closed|stream removed|goaway|broken pipe"
    r"|recvmsg|sendmsg|disconnected",
    re.IGNORECASE,
)
_TLS = re.compile(r"handshake|certificate|ssl_error|ssl:", re.IGNORECASE)

_CHECK_TLS = (
    "compare `ca` of Tls with the certificate of the server, and the name in it with the address; "
    "a server may also want `cert` and `key`"
)
_CHECK_ADDRESS = {
    "grpc": "start one with `mmctl serve`, or check the address: the port must be the one of "
    "gRPC (8001 by default, HTTP has 8000)",
    "http": "start one with `mmctl serve`, or check the address: the port must be the one of "
    "HTTP (8000 by default, gRPC has 8001)",
}

STATUSES: Mapping[str, Callable[[Failure], WorldError]] = {
    "CANCELLED": _answered,
    "UNKNOWN": _answered,
    "INVALID_ARGUMENT": _wrong,
    "DEADLINE_EXCEEDED": _late,
    "NOT_FOUND": _not_found,
    "ALREADY_EXISTS": _answered,
    "PERMISSION_DENIED": _forbidden,
    "RESOURCE_EXHAUSTED": _exhausted,
    "FAILED_PRECONDITION": _answered,
    "ABORTED": _answered,
    "OUT_OF_RANGE": _answered,
    "UNIMPLEMENTED": _unimplemented,
    "INTERNAL": _answered,
    "UNAVAILABLE": _unavailable,
    "DATA_LOSS": _answered,
    "UNAUTHENTICATED": _forbidden,
}
