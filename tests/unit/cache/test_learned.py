"""What levels tell each other lies in the store whole, under its own name, and sealed."""

from __future__ import annotations

import json
import random

import pytest

from mmctl.cache.learned import MAX_BYTES, opened, sealed
from mmctl.cache.stores import names

LEARNED = {"schema": 1, "labels": [[0.9, 0.1, 1.0, 0.8, True, 5.0, False]]}
NAME = names.learned("m", "1", "d")


@pytest.mark.parametrize("secret", [None, b"s"])
def test_it_comes_back_as_it_was(secret: bytes | None) -> None:
    assert opened(sealed(LEARNED, NAME, secret), NAME, secret) == LEARNED


def test_under_another_name_or_secret_it_is_nothing() -> None:
    raw = sealed(LEARNED, NAME, b"s")
    assert opened(raw, names.learned("m", "1", "e"), b"s") is None
    for secret in (None, b"t"):
        assert opened(raw, NAME, secret) is None


@pytest.mark.parametrize("raw", [None, 3, b"", b"x" * 32, b"[]" * 40, b"{" * (MAX_BYTES + 1)])
def test_what_nobody_sealed_is_nothing(raw: object) -> None:
    assert opened(raw, NAME, None) is None  # type: ignore[arg-type]


def test_what_is_sealed_and_no_mapping_is_nothing() -> None:
    for learned in ([1], "text", None):
        assert opened(sealed(learned, NAME, None), NAME, None) is None  # type: ignore[arg-type]


def test_damage_makes_nothing_of_it() -> None:
    raw, rng = sealed(LEARNED, NAME, None), random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(raw))] ^= rng.randint(1, 255)
        cut = bytes(damaged)[: rng.choice([len(raw), rng.randrange(len(raw))])]
        assert cut == raw or opened(cut, NAME, None) is None


def test_names_tell_models_versions_and_contents_apart() -> None:
    parts = [("m", "1", "d"), ("m", "2", "d"), ("m", "1", "e"), ("n", "1", "d"), ("m1", "", "d")]
    assert len({names.learned(*three) for three in parts}) == len(parts)
    assert json.dumps(names.learned("a b", "1", "d")).isascii()
