"""Texts to vectors of length 1: by a model on the server, or in this process from an ONNX file.

Each has a digest, which is part of every partition: vectors of two embedders are never compared.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mmctl.cache.effects import Await, Describe, Infer
from mmctl.cache.envelope import Vector
from mmctl.cache.keys import Identity
from mmctl.cache.meaning import Embedded
from mmctl.effects import Steps
from mmctl.errors import InputError, WorldError
from mmctl.files import sha256_file
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Array

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers

MAX_TOKENS = 128
"""Of a longer text the rest does not count."""
TIMEOUT_S = 1.0
"""A vector that takes longer is no help."""
KNOWN_S = 1.0
"""So long it is believed which content a served model has."""


class Embedder(Protocol):
    """For any number of threads."""

    def embed(self, text: str) -> Steps[Embedded]:
        """Raises MmctlError where there is no vector to be had."""


class ServedEmbedder:
    """A model or pipeline on the client's server, from one text to one vector, such as `embed`."""

    def __init__(
        self,
        model: str = "embed",
        *,
        text: str = "text",
        vector: str = "embedding",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._text, self._vector = model, text, vector
        self._clock = clock
        self._known: tuple[Identity, float] | None = None
        self._last: Identity | None = None
        self._turn = 0

    def embed(self, text: str) -> Steps[Embedded]:
        identity = yield from self._identity()
        texts = np.empty((1, 1), object)
        texts[0, 0] = text
        request = InferRequest(self._model, {self._text: texts})  # an ensemble gives all or none
        response: InferResponse = yield Infer(request, TIMEOUT_S)
        if response.version != identity.version:
            self._known = None
            raise WorldError(f"model `{self._model}`: another version than a moment ago answered")
        vector = vector_of(self._model, response.outputs, self._vector)
        return Embedded(vector, served_digest(identity, self._vector), self._turn)

    def _identity(self) -> Steps[Identity]:
        known, now = self._known, self._clock()
        if known is not None and now - known[1] < KNOWN_S:
            return known[0]
        told = yield Describe(self._model, "", identify=True, timeout_s=TIMEOUT_S)
        identity: Identity = told.identity
        if self._last not in (None, identity):
            self._turn += 1
        self._known, self._last = (identity, now), identity
        return identity


class OnnxEmbedder:
    """An ONNX file and a tokenizer.json, run here: `onnxruntime` and `tokenizers` are needed.

    The graph takes `input_ids` and `attention_mask`, int64 [N, T], and its first output is
    float32 [N, D].
    """

    def __init__(self, model: Path, tokenizer: Path, *, max_tokens: int = MAX_TOKENS) -> None:
        """Raises InputError for a file that is not there."""
        for path in (model, tokenizer):
            if not path.is_file():
                raise InputError(f"`{path}` is not a file", hint="build it with `mmctl build`")
        self._model, self._tokenizer, self._max_tokens = model, tokenizer, max_tokens
        self._worker = ThreadPoolExecutor(1, "embedder")

    @cached_property
    def digest(self) -> str:
        files = sha256_file(self._model), sha256_file(self._tokenizer)
        return _digest(["onnx", *files, str(self._max_tokens)])

    def embed(self, text: str) -> Steps[Embedded]:
        """Beside the caller's thread: an event loop goes on."""
        future = self._worker.submit(lambda: self.vectors([text])[0])
        if not (yield Await(future, TIMEOUT_S)):
            future.cancel()
            raise WorldError("no vector in time")
        return Embedded(future.result(), self.digest)

    def vectors(self, texts: Sequence[str]) -> Vector:
        """float32 [N, D], of N texts at once."""
        session, tokenizer = self._loaded
        encoded = tokenizer.encode_batch(list(texts))
        feeds = {
            "input_ids": np.array([row.ids for row in encoded], np.int64),
            "attention_mask": np.array([row.attention_mask for row in encoded], np.int64),
        }
        return unit(np.asarray(session.run(None, feeds)[0], np.float32))

    @cached_property
    def _loaded(self) -> tuple[onnxruntime.InferenceSession, tokenizers.Tokenizer]:
        try:
            import onnxruntime
            import tokenizers
        except ImportError as error:
            raise WorldError(
                f"texts cannot be embedded here: {error}",
                hint="pip install onnxruntime tokenizers",
            ) from error
        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # more are slower on a machine that is busy
        session = onnxruntime.InferenceSession(
            str(self._model), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer))
        tokenizer.enable_truncation(self._max_tokens)
        tokenizer.enable_padding()
        return session, tokenizer


def served_digest(identity: Identity, output: str) -> str:
    """Of a model on a server that embeds."""
    return _digest(["served", identity.model, output, identity.version, identity.digest])


def vector_of(model: str, outputs: Mapping[str, Array], name: str) -> Vector:
    """The output of a model that embeds. Raises InputError where it is none."""
    if (found := outputs.get(name)) is None or found.dtype.kind != "f":
        raise InputError(
            f"model `{model}` gives no numbers as `{name}`",
            hint="`embedder` names a model that gives one vector for one text",
        )
    return unit(found.astype(np.float32).reshape(-1))


def unit(vectors: Vector) -> Vector:
    """Of length 1 along the last axis; what has no direction stays 0 and is near to nothing."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    good = np.isfinite(lengths) & (lengths > 0)
    return np.where(good, vectors / np.where(good, lengths, 1), 0).astype(np.float32)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
