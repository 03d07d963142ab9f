"""Model folders: the lock, the manifest of a version, the marker of what mmctl generated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmctl.errors import InputError
from mmctl.files import digest_of, render_json, sha256_file
from mmctl.tensors import Signature, TensorSpec, parse_type
from mmctl.triton.config import ModelConfig
from mmctl.triton.recipe import MergeRecipe

SCHEMA = 1
LOCK = "model.lock"
MARKER = ".mmctl.json"
MANIFEST = "manifest.json"
CONFIG = "config.pbtxt"
NEXT = "__next"
"""Ends the name under which a candidate is tried, and stands in for its model meanwhile."""
CANARY = "mmctl.canary"
"""The parameter of a candidate's config by which clients send it requests: how many percent."""
SHADOW = "mmctl.shadow"
"""The same for copies of requests, whose answers nobody gets."""
DIGEST = "mmctl.digest"
"""The parameter of a served config that says what its versions are made from: `1:KEY 2:KEY`. One
that it leaves out is known by its number alone."""


@dataclass(frozen=True, slots=True)
class Lock:
    """model.lock: what a model's current version is made of, readable without its weights.

    `signature.max_batch` here only says whether there is a batch axis (0 or 1): how large a batch
    may be is a setting, and settings give no new version. `files` maps names inside the version
    folder to SHA-256. `evidence` is what the gates measured when this version was made.
    """

    version: int
    build_key: str
    signature: Signature
    files: Mapping[str, str]
    precision: str = "fp32"
    evidence: tuple[Mapping[str, Any], ...] = ()
    history: tuple[tuple[int, str], ...] = ()
    """Every version there ever was with its build key, the current one last."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A file of a model package, `package:NAME/path`; `sha256` "" where nobody says it."""

    address: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class GeneratedModel:
    """A model folder that the compiler makes; it holds only small files, or a merged model.

    `files` go into the version folder, by path inside it. `configs` maps paths inside the model's
    folder to configs, unpinned. `calls` names the models it calls. `own_key` is the SHA-256 over
    what the version is made from, the called models left out. `origin` is the file to edit.
    """

    name: str
    configs: Mapping[str, ModelConfig]
    signature: Signature
    origin: str
    own_key: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    resources: Mapping[str, Resource] = field(default_factory=dict)
    """Files of model packages, by path inside the version folder."""
    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON files, by path, that also say which version of each called model is meant: `pinned`
    makes them files."""
    merge: MergeRecipe | None = None
    """What the version's model.onnx is made of, when it is built."""

    def pinned(self, calls: Mapping[str, int], digests: Mapping[str, str]) -> GeneratedModel:
        """With `pins` (version) and `digests` (build key) of the called models in its plans."""
        known = {"pins": dict(calls), "digests": dict(digests)}
        made = {path: render_json({**p, **known}).encode() for path, p in self.plans.items()}
        return replace(self, files={**self.files, **made}, plans={})

    @property
    def file_digests(self) -> dict[str, str]:
        """SHA-256 of what the compiler itself makes; packages are pinned by their own hashes."""
        return file_digests(self.files)

    @property
    def lock_signature(self) -> Signature:
        """The signature as a lock keeps it: with or without a batch axis, not how large."""
        return replace(self.signature, max_batch=min(self.signature.max_batch, 1))


def render_digests(keys: Mapping[int, str]) -> str:
    """The value of the parameter DIGEST for build keys by version."""
    return " ".join(f"{version}:{key}" for version, key in sorted(keys.items()))


def digests_of(text: str) -> dict[int, str]:
    """The reverse of `render_digests`; what is no such pair is left out."""
    pairs = (pair.partition(":") for pair in text.split())
    return {int(version): key for version, _, key in pairs if version.isdecimal() and key}


def content_digest(folder: Path) -> str:
    """SHA-256 over all files of a version folder but Python's caches: the build key of one that
    mmctl did not make.
    """
    files = (path for path in folder.rglob("*") if path.parent.name != "__pycache__")
    return digest_of({str(f.relative_to(folder)): sha256_file(f) for f in files if f.is_file()})


def file_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def read_lock(folder: Path) -> Lock | None:
    """The lock of a model, or None when it was never built. Raises InputError when broken."""
    path = folder / LOCK
    if not path.is_file():
        return None
    try:
        return _lock_of(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: not a lock that this mmctl can read: {error}",
            hint="restore it from version control, or delete it and run `mmctl build`",
        ) from error


def render_lock(lock: Lock) -> str:
    return render_json(
        {
            "schema": SCHEMA,
            "version": lock.version,
            "build_key": lock.build_key,
            "signature": {
                "inputs": [_spec_json(s, lock.signature) for s in lock.signature.inputs],
                "outputs": [_spec_json(s, lock.signature) for s in lock.signature.outputs],
            },
            "files": dict(lock.files),
            "precision": lock.precision,
            "evidence": [dict(row) for row in lock.evidence],
            "history": [{"version": v, "build_key": key} for v, key in lock.history],
        }
    )


def version_for(lock: Lock | None, build_key: str) -> int:
    """The number that `build_key` has had, or the next free one: numbers are never used again."""
    history = lock.history if lock else ()
    for version, key in history:
        if key == build_key:
            return version
    return max((version for version, _ in history), default=0) + 1


def history_with(lock: Lock | None, version: int, build_key: str) -> tuple[tuple[int, str], ...]:
    """The lock's history with this version as the current, last one."""
    before = tuple(row for row in (lock.history if lock else ()) if row[0] != version)
    return (*before, (version, build_key))


def render_manifest(version: int, build_key: str, config: str, calls: Mapping[str, int]) -> str:
    """manifest.json of a version folder; `config` is the text of its whole config.pbtxt."""
    return render_json(
        {
            "schema": SCHEMA,
            "version": version,
            "build_key": build_key,
            "config": config,
            "calls": dict(calls),
        }
    )


def read_build_key(version_folder: Path) -> str | None:
    """The build key that a version folder was made for; None when it is absent or not ours."""
    try:
        manifest = json.loads((version_folder / MANIFEST).read_text())
        return str(manifest["build_key"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def render_marker(origin: str) -> str:
    return render_json({"schema": SCHEMA, "generated_by": "mmctl", "from": origin})


def read_marker(folder: Path) -> str | None:
    """The file that a generated folder was made from, relative to the workspace."""
    try:
        return str(json.loads((folder / MARKER).read_text())["from"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_generated(folder: Path) -> bool:
    """Whether mmctl made the whole folder, so that it may rewrite or remove it."""
    return (folder / MARKER).is_file()


def is_foreign(folder: Path) -> bool:
    """Whether the folder is the user's own: a config.pbtxt that mmctl reads and never writes."""
    return (
        (folder / CONFIG).is_file()
        and not (folder / "model.yaml").is_file()
        and not is_generated(folder)
    )


def _spec_json(spec: TensorSpec, signature: Signature) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": spec.name,
        "dtype": str(spec.type.dtype),
        "shape": list(spec.type.dims),
        "batched": signature.max_batch > 0,
    }
    return {**entry, "optional": True} if spec.optional else entry


def _lock_of(data: Mapping[str, Any]) -> Lock:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']} instead of {SCHEMA}")
    tensors = data["signature"]
    batched = any(t["batched"] for t in (*tensors["inputs"], *tensors["outputs"]))
    return Lock(
        version=int(data["version"]),
        build_key=str(data["build_key"]),
        signature=Signature(
            inputs=tuple(_spec_of(t) for t in tensors["inputs"]),
            outputs=tuple(_spec_of(t) for t in tensors["outputs"]),
            max_batch=int(batched),
        ),
        files=dict(data["files"]),
        precision=str(data["precision"]),
        evidence=tuple(data["evidence"]),
        history=tuple((int(row["version"]), str(row["build_key"])) for row in data["history"]),
    )


def _spec_of(tensor: Mapping[str, Any]) -> TensorSpec:
    dims = ",".join(str(dim) for dim in tensor["shape"])
    text = f"{tensor['dtype']}[{dims}]" if dims else str(tensor["dtype"])
    return TensorSpec(str(tensor["name"]), parse_type(text), bool(tensor.get("optional", False)))
