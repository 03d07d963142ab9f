"""The section `cache:` of mmctl.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mmctl.cache.settings import (
    CacheSettings,
    ModelCache,
    Semantic,
    Static,
    Verified,
    VerifiedPolicy,
    read_settings,
)
from mmctl.errors import InputError, InvalidFiles
from mmctl.workspace import read_workspace


def settings_of(folder: Path, text: str) -> CacheSettings:
    (folder / "mmctl.yaml").write_text(text)
    return read_settings(read_workspace(folder))


def test_all_that_can_be_said(tmp_path: Path) -> None:
    said = settings_of(
        tmp_path,
        """
        cache:
          store: redis://127.0.0.1:6379/0
          secret_env: SECRET
          max_bytes: 256MiB
          models:
            tag: {ttl_s: 600, normalise: text, stale_s: 30, shared: true}
            reply: {semantic: {input: text, policy: {static: 0.9}, guard: false}}
            intent: {semantic: {input: text, output: label, policy: {verified: {max_error: 0.02}}}}
            asked: {semantic: {input: text, policy: off}}
            lottery: off
          others: {ttl_s: 60}
        """,
    )
    intent = VerifiedPolicy(verified=Verified(max_error=0.02))
    assert said == CacheSettings(
        store="redis://127.0.0.1:6379/0",
        secret_env="SECRET",
        max_bytes=256 * 1024 * 1024,
        models={
            "tag": ModelCache(ttl_s=600, normalise="text", stale_s=30, shared=True),
            "reply": ModelCache(
                semantic=Semantic(input="text", policy=Static(static=0.9), guard=False)
            ),
            "intent": ModelCache(semantic=Semantic(input="text", output="label", policy=intent)),
            "asked": ModelCache(semantic=Semantic(input="text", policy="off")),
            "lottery": "off",
        },
        others=ModelCache(ttl_s=60),
    )


@pytest.mark.parametrize("text", ["", "targets: {}", "cache:"])
def test_without_a_section_all_is_as_usual(tmp_path: Path, text: str) -> None:
    said = settings_of(tmp_path, text)
    assert said == CacheSettings()
    assert said.of("any") == ModelCache(ttl_s=3600)


def test_a_model_is_off_when_it_or_all_others_are() -> None:
    named = CacheSettings(models={"lottery": "off"})
    assert named.of("lottery") is None
    assert named.of("lottery__next") is None
    assert named.of("tag") == ModelCache()
    only = CacheSettings(models={"tag": ModelCache()}, others="off")
    assert only.of("tag") == ModelCache()
    assert only.of("lottery") is None


def test_the_guard_is_on_where_answers_are_text() -> None:
    assert Semantic(input="text").guards
    assert not Semantic(input="text", output="label").guards
    assert Semantic(input="text", output="label", guard=True).guards


@pytest.mark.parametrize(
    ("section", "finding"),
    [
        (
            "max_bytes: lots",
            "2:14: Y005 `max_bytes`: write a number of bytes, or KiB, MiB, GiB: 256MiB",
        ),
        ("max_bytes: 0", "2:14: Y005 `max_bytes`: input should be greater than or equal to 1"),
        ("store: [a]", "2:10: Y005 `store`: write one value, not a list or a mapping"),
        ("modls: {}", "2:3: Y003 unknown key `modls`\n  hint: did you mean `models`?"),
        ("models: {a: on}", "2:15: Y005 `a`: write a mapping: {KEY: VALUE}"),
        ("models: {a: {ttl: 3}}", "2:16: Y003 unknown key `ttl`\n  hint: did you mean `ttl_s`?"),
        (
            "models: {a: {ttl_s: -1}}",
            "2:23: Y005 `ttl_s`: input should be greater than or equal to 0",
        ),
        ("models: {a: {shared: yes}}", "2:24: Y005 `shared`: write true or false"),
        ("models: {a: {semantic: {policy: off}}}", "2:26: Y004 `input` is missing"),
        (
            "models: {a: {semantic: {input: t, policy: {verified: {max_error: 0.1}}}}}",
            "2:26: Y005 `semantic`: `verified` needs `output`: it compares that of two answers",
        ),
        (
            "models: {a: {semantic: {input: t, policy: {static: 2}}}}",
            "2:54: Y005 `static`: input should be less than or equal to 1",
        ),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, section: str, finding: str) -> None:
    with pytest.raises(InvalidFiles) as told:
        settings_of(tmp_path, f"cache:\n  {section}\n")
    assert str(told.value) == f"mmctl.yaml:{finding}"


def test_the_same_is_made_in_python() -> None:
    with pytest.raises(ValidationError, match="ttl"):
        ModelCache(ttl=3)  # type: ignore[call-arg]


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CacheSettings(secret_env="MMCTL_TEST_SECRET")
    with pytest.raises(InputError, match="MMCTL_TEST_SECRET"):
        settings.secret()
    monkeypatch.setenv("MMCTL_TEST_SECRET", "long")
    assert settings.secret() == b"long"
    assert CacheSettings().secret() is None
