"""What `explain` says must be what the cache does: each test lets a cache do it first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cache_worlds import MODEL, Model, ask, text

from mmctl.cache.cache import Cache
from mmctl.cache.effects import performers
from mmctl.cache.explain import Explanation, explained
from mmctl.cache.settings import CacheSettings, ModelCache, Semantic
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore
from mmctl.effects import by_type, drive
from mmctl.inference import InferRequest


@pytest.fixture
def cache(store: SharedStore, store_url: str) -> Iterator[Cache]:
    with Cache(tenant="shop", settings=CacheSettings(), store=store_url) as cache:
        yield cache


def explain(store: SharedStore | None, request: InferRequest, **options: Any) -> Explanation:
    options = {"settings": CacheSettings(), "tenant": "shop", "now": time.time(), **options}
    settings = options.pop("settings")
    steps = explained(settings, MODEL, request, **options)
    return drive(steps, by_type(performers(store)))


def test_the_key_is_the_one_that_the_cache_uses(cache: Cache, store: SharedStore) -> None:
    request = text("Hello")
    assert explain(store, request).held.state == "nothing"
    ask(cache, Model(), request)
    found = explain(store, request)
    assert found.held.state == "fresh"
    assert found.held.age_s is not None
    assert found.held.age_s < 5
    assert store.run(("EXISTS", names.entry(bytes.fromhex(found.key)))) == [1]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"tenant": "another"}, id="of another tenant"),
        pytest.param({"secret": b"secret"}, id="with a secret"),
    ],
)
def test_another_has_another_key(
    cache: Cache, store: SharedStore, other: dict[str, object]
) -> None:
    ask(cache, Model(), text("Hello"))
    assert explain(store, text("Hello"), **other).held.state == "nothing"


def test_a_moved_epoch_shows(cache: Cache, store: SharedStore) -> None:
    ask(cache, Model(), text("Hello"))
    before = explain(store, text("Hello"))
    cache.clear("m")
    after = explain(store, text("Hello"))
    assert (before.held.state, after.held.state) == ("fresh", "nothing")
    assert before.epoch != after.epoch


def test_the_normalised_key_is_the_one_that_the_cache_uses(
    store: SharedStore, store_url: str
) -> None:
    settings = CacheSettings(models={"m": ModelCache(normalise="text")})
    with Cache(tenant="shop", settings=settings, store=store_url) as cache:
        ask(cache, Model(), text("Hello"))
    found = explain(store, text("hello!"), settings=settings)
    assert found.held.state == "nothing"
    assert found.normalised_held is not None
    assert found.normalised_held.state == "fresh"


def test_what_is_damaged_is_said_to_be(cache: Cache, store: SharedStore) -> None:
    ask(cache, Model(), text("Hello"))
    store.run(("APPEND", names.entry(bytes.fromhex(explain(store, text("Hello")).key)), "x"))
    assert explain(store, text("Hello")).held.state == "unreadable"


def test_an_answer_that_is_being_computed_is_under_way(store: SharedStore) -> None:
    key = bytes.fromhex(explain(store, text("Hello")).key)
    store.run(("SET", names.lease(key), 1))
    assert explain(store, text("Hello")).held.state == "under way"


def test_an_old_answer_is_told_with_its_age(cache: Cache, store: SharedStore) -> None:
    ask(cache, Model(), text("Hello"))
    later = explain(store, text("Hello"), now=time.time() + 100_000)
    assert later.held.state == "nothing"
    assert later.held.left_s == 0


@pytest.mark.parametrize(
    ("settings", "request_", "reason"),
    [
        pytest.param(
            {"models": {"m": "off"}}, text("a"), "the cache is off for this model", id="off"
        ),
        pytest.param({}, text("a", parameters={"sequence_id": 7}), "sequence", id="sequence"),
        pytest.param(
            {}, text("a", headers={"Cache-Control": "no-store"}), "no-store", id="by a header"
        ),
        pytest.param({}, text("a", parameters={"temperature": 1}), "sampling", id="drawn"),
        pytest.param({}, text("a"), None, id="nothing is in the way"),
    ],
)
def test_why_no_cache_answers(
    settings: dict[str, Any], request_: InferRequest, reason: str | None
) -> None:
    assert explain(None, request_, settings=CacheSettings(**settings)).bypass == reason


def test_no_text_of_a_request_is_shown() -> None:
    request = text("my secret", parameters={"prompt": "my secret too", "beams": 3})
    found = explain(None, request)
    assert "secret" not in repr(found)
    assert found.parameters["beams"] == "3"
    assert found.inputs["text"].startswith("BYTES [1] sha256 ")


def test_without_a_store_only_what_it_holds_is_unknown() -> None:
    found = explain(None, text("Hello"))
    assert found.held.state == "unknown"
    assert len(found.key) == 64


def test_the_partition_needs_an_embedder_and_leaves_the_text_out() -> None:
    settings = CacheSettings(models={"m": ModelCache(semantic=Semantic(input="text"))})
    assert explain(None, text("a"), settings=settings).partition is None
    one, two = (
        explain(None, text(word), settings=settings, embedder="e1").partition for word in "ab"
    )
    assert one == two is not None
    assert explain(None, text("a"), settings=settings, embedder="e2").partition != one
