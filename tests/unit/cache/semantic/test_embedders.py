"""How a text becomes a vector on the client's server, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_worlds import MODEL, Model, text
from clocks import Clock

from mmctl.cache.cache import Cache
from mmctl.cache.effects import Describe, Infer
from mmctl.cache.keys import Identity
from mmctl.cache.semantic.embedders import OnnxEmbedder, ServedEmbedder, unit, vector_of
from mmctl.cache.semantic.levels import Levels
from mmctl.cache.settings import CacheSettings, ModelCache, Semantic
from mmctl.client.description import Description
from mmctl.effects import drive
from mmctl.errors import InputError, WorldError
from mmctl.inference import InferResponse
from mmctl.tensors import Signature


class Server:
    """Embeds texts by their letters, as the version that it has."""

    def __init__(self) -> None:
        self.version, self.digest = "1", "d1"
        self.fails: Exception | None = None
        self.described = self.embedded = 0

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Describe):
            self.described += 1
            assert effect.identify
            identity = Identity(effect.model, self.version, self.digest)
            return Description(Signature((), ()), identity)
        assert isinstance(effect, Infer)
        self.embedded += 1
        if self.fails:
            raise self.fails
        (said,) = effect.request.inputs["text"].ravel().tolist()
        vector = np.zeros((1, 32), np.float32)
        for letter in said.encode():
            vector[0, letter % 32] += 1
        return InferResponse({"embedding": vector}, effect.request.model, self.version)


def test_a_vector_has_length_1_and_says_what_made_it() -> None:
    server, clock = Server(), Clock()
    embedder = ServedEmbedder(clock=clock)
    first = drive(embedder.embed("hello"), server.perform)
    assert np.linalg.norm(first.vector) == pytest.approx(1)
    assert drive(embedder.embed("hello"), server.perform).embedder == first.embedder
    assert server.described == 1
    server.digest = "d2"
    clock.now += 1
    assert drive(embedder.embed("hello"), server.perform).embedder != first.embedder


def test_an_exchange_in_between_gives_no_vector() -> None:
    server = Server()
    embedder = ServedEmbedder(clock=Clock())
    drive(embedder.embed("hello"), server.perform)
    server.version = "2"
    with pytest.raises(WorldError, match="another version"):
        drive(embedder.embed("hello"), server.perform)
    drive(embedder.embed("hello"), server.perform)


def test_what_has_no_direction_is_near_to_nothing() -> None:
    vectors = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1]], np.float32)
    assert unit(vectors).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], *[[0, 0]] * 3]


@pytest.mark.parametrize("outputs", [{}, {"embedding": np.array([1])}], ids=["none", "whole"])
def test_a_model_without_a_vector_is_said_to_have_none(outputs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="model `tag` gives no numbers as `embedding`"):
        vector_of("tag", outputs, "embedding")


def test_files_that_are_not_there_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.onnx"):
        OnnxEmbedder(tmp_path / "model.onnx", tmp_path / "tokenizer.json")


# ------------------------------------------------------------ with a cache


def asker(server: Server, clock: Clock) -> tuple[Cache, Callable[[str], str]]:
    setting = ModelCache(semantic=Semantic(input="text"))
    levels = Levels(embedder=ServedEmbedder(clock=clock), clock=clock)
    cache = Cache(tenant="t", settings=CacheSettings(others=setting), meaning=levels, clock=clock)
    model = Model()

    def perform(effect: Any) -> Any:
        if isinstance(effect, Describe | Infer):
            return server.perform(effect)
        return cache.performers[type(effect)](effect)

    def level(said: str) -> str:
        return drive(cache.steps(MODEL, text(said), model.compute), perform)[1].level

    return cache, level


def test_a_cache_embeds_on_the_server_of_its_client() -> None:
    _, level = asker(Server(), Clock())
    assert [level("where is my parcel"), level("where is my parcel!")] == ["none", "semantic"]


def test_another_embedder_finds_nothing_of_the_one_before() -> None:
    server, clock = Server(), Clock()
    _, level = asker(server, clock)
    level("where is my parcel")
    server.digest = "d2"
    clock.now += 2
    assert [level("where is my parcel!"), level("where is my parcel?")] == ["none", "semantic"]


def test_an_embedder_that_fails_is_left_alone_for_a_while() -> None:
    server, clock = Server(), Clock()
    server.fails = WorldError("nobody there")
    _, level = asker(server, clock)
    assert [level(f"text {number}") for number in range(10)] == ["none"] * 10
    assert server.embedded == 1
    server.fails = None
    clock.now += 6
    assert [level("where is my parcel"), level("where is my parcel!")] == ["none", "semantic"]


def test_a_server_without_the_embedder_is_told_of_once() -> None:
    server, clock = Server(), Clock()
    server.fails = InputError("no model `embed` is loaded")
    _, level = asker(server, clock)
    with pytest.warns(RuntimeWarning, match="no model `embed` is loaded"):
        level("a")
    clock.now += 6
    assert level("b") == "none"  # a second warning would be an error
