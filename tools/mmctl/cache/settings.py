"""What a user says of caching: the section `cache:` of mmctl.yaml, or the same made in Python.

cache:
  store: redis://127.0.0.1:6379/0
  max_bytes: 256MiB
  models:
    tag: {ttl_s: 600, normalise: text}
    reply: {semantic: {input: text, policy: {static: 0.95}}}
    intent: {semantic: {input: text, output: label, policy: {verified: {max_error: 0.02}}}}
    lottery: off
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from mmctl.documents import Document, Entry, Flag, Size, load_entry, read_document
from mmctl.errors import InputError
from mmctl.triton.repository import NEXT
from mmctl.workspace import FILE, Workspace

OFF = "off"
MIB = 1024 * 1024

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Static(Entry):
    """Texts are alike when their cosine is at least `static`."""

    static: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.95


class Verified(Entry):
    """What a learned gate promises."""

    max_error: Share
    """Of the answers from the cache, so many may be wrong: a share."""


class VerifiedPolicy(Entry):
    """Texts are alike when a gate says so that has learned from the model's own answers."""

    verified: Verified


def _policy_kind(value: object) -> str:
    if value == OFF:
        return OFF
    said = value if isinstance(value, Mapping) else getattr(value, "model_fields_set", ())
    return "verified" if "verified" in said else "static"


Policy: TypeAlias = Annotated[
    Annotated[Static, Tag("static")]
    | Annotated[VerifiedPolicy, Tag("verified")]
    | Annotated[Literal["off"], Tag(OFF)],
    Discriminator(_policy_kind),
]


class Semantic(Entry):
    """Answers for texts that mean the same."""

    input: str
    """The text input; all other inputs must be equal."""
    policy: Policy = Static()
    output: str | None = None
    """What says whether two answers are the same one; without it all outputs do."""
    guard: Flag | None = None
    """Also compare numbers, dates, negations and names. By default where `policy` is static and no
    `output` is named, which is where an answer is text.
    """
    ttl_s: Seconds = 1800.0
    embedder: str = "embed"
    """The model on the same server that turns a text into a vector."""
    within: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Answers are the same where no number of `output` differs by more. Without it scores are the
    same when the same one is the largest, and all else when it is equal.
    """

    @model_validator(mode="after")
    def _verified_names_an_output(self) -> Semantic:
        if isinstance(self.policy, VerifiedPolicy) and self.output is None:
            raise ValueError("`verified` needs `output`: it compares that of two answers")
        return self

    @property
    def guards(self) -> bool:
        return self.output is None if self.guard is None else self.guard


class ModelCache(Entry):
    """How the answers of one model are kept."""

    ttl_s: Seconds = 3600.0
    stale_s: Seconds = 0.0
    """So long after `ttl_s` an old answer may be given, while one caller fetches a new one."""
    negative_s: Annotated[float, Field(ge=0, le=5)] = 2.0
    """An error that says the request is wrong is given again for so long."""
    shared: Flag = False
    """Whether tenants may get each other's exact answers."""
    normalise: str | None = None
    """A text input of which case, width, spaces and punctuation at the end do not matter."""
    semantic: Semantic | None = None


def _model_kind(value: object) -> str:
    return OFF if value == OFF else "on"


ModelSetting: TypeAlias = Annotated[
    Annotated[ModelCache, Tag("on")] | Annotated[Literal["off"], Tag(OFF)],
    Discriminator(_model_kind),
]


class CacheSettings(Entry):
    """The section `cache:` of mmctl.yaml."""

    store: str | None = None
    """The address of a Redis or Valkey that processes share."""
    secret_env: str | None = None
    """The environment variable with a secret that seals what lies in the store."""
    max_bytes: Size = 256 * MIB
    """Of the answers that a process keeps."""
    max_entry_bytes: Size = 8 * MIB
    """A larger answer is not kept."""
    semantic_entries: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Texts that a process keeps for the semantic levels of all its models."""
    models: dict[str, ModelSetting] = Field(default_factory=dict)
    others: ModelSetting = ModelCache()
    """For models that are not named."""

    def of(self, model: str) -> ModelCache | None:
        """How a model's answers are kept; None when they are not. A candidate's as the model's."""
        said = self.models.get(model.removesuffix(NEXT), self.others)
        return said if isinstance(said, ModelCache) else None

    def secret(self) -> bytes | None:
        """Raises InputError when the variable that is named is not set."""
        if self.secret_env is None:
            return None
        if not (value := os.environ.get(self.secret_env)):
            raise InputError(
                f"`cache.secret_env` names `{self.secret_env}`, which is not set",
                hint="set it to a long random text, the same for all who share the store",
            )
        return value.encode()


def read_settings(workspace: Workspace) -> CacheSettings:
    """The section `cache:` of mmctl.yaml; without one, what is normal.

    Raises InvalidFiles with every mistake at its place.
    """
    return settings_of(read_document(workspace.root / FILE, shown=FILE))


def settings_of(document: Document) -> CacheSettings:
    """The same of mmctl.yaml as it was read."""
    if not isinstance(document.data, dict) or document.data.get("cache") is None:
        return CacheSettings()
    return load_entry(CacheSettings, document, "cache")
