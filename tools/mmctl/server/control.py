"""Triton's model control API over HTTP, with the standard library alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from mmctl.errors import WorldError
from mmctl.server.access import http_headers

LOAD_TIMEOUT_S = 900.0

# A proxy from the environment has no business between two programs of one machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class ModelState:
    """A row of the repository index. Without version and state, the model was never loaded."""

    name: str
    version: str | None = None
    state: str | None = None
    reason: str = ""

    @property
    def ready(self) -> bool:
        return self.state == "READY"


class Refusal(Exception):
    """Triton's own words for why it did not do what was asked."""


@dataclass(frozen=True, slots=True)
class Control:
    """A Triton at `http`, host:port, and the key that it wants to be steered with ("" for none).

    Raises WorldError when it does not answer.
    """

    http: str
    key: str = field(default="", repr=False)

    def live(self) -> bool:
        """Whether it answers at all; models may still be loading, or have failed."""
        try:
            self._ask("GET", "v2/health/live", timeout_s=2)
        except (WorldError, Refusal):
            return False
        return True

    def index(self) -> tuple[ModelState, ...]:
        """Every model that the repository has and Triton could read, version by version."""
        return tuple(
            ModelState(row["name"], row.get("version"), row.get("state"), row.get("reason", ""))
            for row in self._ask("POST", "v2/repository/index", {})
        )

    def load(self, model: str, timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Raises Refusal; its text is often only that loading failed."""
        self._ask("POST", f"v2/repository/models/{_quoted(model)}/load", {}, timeout_s)

    def unload(self, model: str) -> None:
        """Raises Refusal."""
        self._ask("POST", f"v2/repository/models/{_quoted(model)}/unload", {}, LOAD_TIMEOUT_S)

    def config(self, model: str, version: str) -> Any:
        """The config of a loaded version as Triton completed it, as JSON. Raises Refusal."""
        return self._ask("GET", f"v2/models/{_quoted(model)}/versions/{version}/config")

    def instances(self, model: str, version: str) -> int:
        """How many instances a loaded version has, by its config. Raises Refusal."""
        groups = self.config(model, version).get("instance_group", [])
        return sum(group["count"] for group in groups if not group.get("passive"))

    def _ask(self, method: str, path: str, body: object = None, timeout_s: float = 30.0) -> Any:
        request = urllib.request.Request(
            f"http://{self.http}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=http_headers(self.key),
        )
        try:
            with _opener.open(request, timeout=timeout_s) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            raise Refusal(_reason(error)) from None
        except (OSError, ValueError) as error:
            raise WorldError(
                f"Triton at {self.http} does not answer: {error}",
                hint="run `mmctl logs` to see what it said last",
            ) from error


def _quoted(model: str) -> str:
    return urllib.parse.quote(model, safe="")


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text or f"HTTP {error.code}"
