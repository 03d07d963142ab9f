"""A model repository as it lies on disk: read, never run. What the rules look at.

Works on repositories that mmctl never wrote. Only names and small texts are read here; a model's
ONNX file and Python code are read when a rule asks for them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mmctl.diagnostics import Finding, Position
from mmctl.errors import InputError
from mmctl.lint.text import SYNTAX, ConfigText, read_config_text
from mmctl.triton.releases import Release
from mmctl.triton.repository import CONFIG, LOCK, MARKER, read_lock

SPECIAL_FOLDERS = frozenset({"configs", "warmup", "initial_state"})
"""Folders of a model that Triton knows and that are no versions."""

SOURCE = "model.yaml"
"""What people write for `mmctl export`, which makes the rest of the folder."""

UNREADABLE = "R001"
MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Target:
    """What the findings rest on; None where nobody said: then nothing is found about it."""

    release: Release | None = None
    gpus: int | None = None
    name: str = ""
    tensorrt: tuple[int, ...] | None = None
    capability: str = ""

    def __str__(self) -> str:
        return self.name or (f"Triton {self.release}" if self.release else "the target")


@dataclass(frozen=True, eq=False)
class Model:
    """A folder of a repository. `shown` is its path as findings name it.

    `config` is None where there is no config.pbtxt. `entries` are the names in the folder,
    `versions` the folders that Triton takes for versions with the names in each; a version that
    `mmctl build` makes later counts, with the files that its lock names.
    """

    name: str
    path: Path
    shown: str
    config: ConfigText | None
    entries: Mapping[str, bool]
    """Name -> whether it is a folder."""
    versions: Mapping[int, frozenset[str]]
    findings: tuple[Finding, ...] = ()
    """What could not even be read."""

    @property
    def message(self) -> Any:
        """Triton's ModelConfig, as far as it is known: empty without a config.pbtxt."""
        return self.config.message if self.config else _empty()

    def at(self, *location: str | int) -> Position:
        """A place in config.pbtxt; the folder where there is none."""
        return self.config.at(*location) if self.config else Position(self.shown)

    @property
    def is_ensemble(self) -> bool:
        message = self.message
        return bool(message.platform == "ensemble" or message.HasField("ensemble_scheduling"))

    @property
    def generated(self) -> bool:
        """Whether mmctl made the folder."""
        return MARKER in self.entries

    @property
    def readable(self) -> bool:
        """Whether rules may look at the message: the text says what was meant."""
        return self.config is None or not self.config.broken

    @cached_property
    def served_versions(self) -> tuple[int, ...]:
        """The versions that Triton loads, by the version policy (default: the latest one)."""
        policy = self.message.version_policy
        known = sorted(self.versions)
        if policy.HasField("all"):
            return tuple(known)
        if policy.HasField("specific"):
            return tuple(v for v in known if v in set(policy.specific.versions))
        count = policy.latest.num_versions if policy.HasField("latest") else 1
        return tuple(known[-count:] if count > 0 else ())

    @cached_property
    def backend(self) -> str:
        """The backend by Triton's rules, "" where only a server can tell.

        From `backend`, else `platform`, else the file in the first version folder, else the name
        (`x.dali`). Source: AutoCompleteBackendFields of Triton's core.
        """
        message = self.message
        if message.backend:
            return str(message.backend)
        given = message.default_model_filename
        if message.platform:
            return PLATFORM_BACKENDS.get(message.platform) or FILE_BACKENDS.get(given, "")
        if message.HasField("ensemble_scheduling"):
            return "ensemble"
        if given:
            return FILE_BACKENDS.get(given, "")
        return self._backend_of_files() or self.name.partition(".")[2]

    def _backend_of_files(self) -> str:
        # Triton looks into the first version in order of the names, not of the numbers.
        first = min(map(str, self.versions), default=None)
        names = self.versions[int(first)] if first is not None else frozenset()
        return next((b for filename, b in FILE_BACKENDS.items() if filename in names), "")

    @property
    def model_filename(self) -> str:
        """The file in a version folder that the backend opens, "" where it has no fixed one."""
        return self.message.default_model_filename or DEFAULT_FILES.get(self.backend, "")

    def version_file(self, version: int) -> Path:
        return self.path / str(version) / self.model_filename


PLATFORM_BACKENDS: Mapping[str, str] = {
    "ensemble": "ensemble",
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
}
FILE_BACKENDS: Mapping[str, str] = {
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.plan": "tensorrt",
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.py": "python",
}
DEFAULT_FILES: Mapping[str, str] = {
    "onnxruntime": "model.onnx",
    "tensorrt": "model.plan",
    "pytorch": "model.pt",
    "python": "model.py",
    "openvino": "model.xml",
}


@dataclass(frozen=True, eq=False)
class Repository:
    """The models of a folder by name, and for which Triton they are."""

    models: Mapping[str, Model]
    target: Target = field(default_factory=Target)
    whole: bool = True
    """Whether every model of it is here: else a name that is not here may be elsewhere."""


def read_repository(
    path: Path, shown: str, target: Target, values: Mapping[str, str] | None = None
) -> tuple[Repository, tuple[Finding, ...]]:
    """Every folder of `path` is a model, as Triton has it; findings for what cannot be read."""
    models: dict[str, Model] = {}
    findings: list[Finding] = []
    try:
        entries = _scan(path)
    except OSError as error:
        return Repository({}, target), (_cannot_read(shown, error),)
    for name, is_folder in sorted(entries.items()):
        if is_folder and not name.startswith("."):
            model = read_model(path / name, join(shown, name), target, values)
            models[name] = model
            findings += model.findings
    return Repository(models, target), tuple(findings)


def read_model(
    path: Path, shown: str, target: Target, values: Mapping[str, str] | None = None
) -> Model:
    """One model folder. What cannot be read is a finding of the model."""
    name = path.name
    try:
        entries = _scan(path)
    except OSError as error:
        return Model(name, path, shown, None, {}, {}, (_cannot_read(shown, error),))
    findings: list[Finding] = []
    versions = {}
    for entry, is_folder in entries.items():
        if is_folder and is_version(entry):
            try:
                versions[int(entry)] = _files(path / entry)
            except OSError as error:
                findings.append(_cannot_read(join(shown, entry), error))
    versions |= _built_later(path, entries, versions)
    config = None
    if CONFIG in entries:
        config = read_config(path / CONFIG, join(shown, CONFIG), target, values)
    return Model(name, path, shown, config, entries, versions, tuple(findings))


def _built_later(
    path: Path, entries: Mapping[str, bool], versions: Mapping[int, frozenset[str]]
) -> dict[int, frozenset[str]]:
    """The version that a model.lock says `mmctl build` makes: a clean checkout has no weights."""
    if LOCK not in entries:
        return {}
    try:
        lock = read_lock(path)
    except (InputError, OSError):
        return {}  # a broken lock is found where it is used
    if lock is None or lock.version in versions:
        return {}
    return {lock.version: frozenset(name.partition("/")[0] for name in lock.files)}


def read_config(
    path: Path, shown: str, target: Target, values: Mapping[str, str] | None = None
) -> ConfigText:
    """A config.pbtxt; what cannot be read of it is in its `findings`."""
    try:
        content = read_bytes(path)
    except OSError as error:
        return _unread_config(shown, _cannot_read(shown, error))
    try:
        text = content.decode("utf-8-sig") if content[:3] == b"\xef\xbb\xbf" else content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        place = Position(shown, line, column)
        message = "the file is not UTF-8 text"
        return _unread_config(shown, Finding.at(place, SYNTAX, message, "save it as UTF-8"))
    return read_config_text(text, shown, release=target.release, values=values)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A regular file of at most `limit` bytes. Raises OSError: a pipe would never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"larger than {limit // 1024 // 1024} MiB")
    return content


def is_version(name: str) -> bool:
    """Whether Triton takes the folder for a version: a number, no zero before another digit."""
    if not (name.isascii() and name.isdigit()) or (name.startswith("0") and name != "0"):
        return False
    return len(name) < 20 and int(name) < 2**63


def join(shown: str, name: str) -> str:
    return name if shown in ("", ".") else f"{shown}/{name}"


def _scan(path: Path) -> dict[str, bool]:
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                found[entry.name] = entry.is_dir()
            except OSError:  # a link that leads round in a circle
                found[entry.name] = False
    return found


def _files(path: Path) -> frozenset[str]:
    """The names in a version folder; a link that leads nowhere is none, to Triton too."""
    with os.scandir(path) as entries:
        return frozenset(
            entry.name for entry in entries if not entry.is_symlink() or os.path.exists(entry.path)
        )


def _cannot_read(shown: str, error: OSError) -> Finding:
    hint = "Triton must read every file of the repository: check the permissions"
    return Finding.at(
        Position(shown),
        UNREADABLE,
        f"cannot be read: {error.strerror or error}",
        hint if error.errno in (errno.EACCES, errno.EPERM) else None,
    )


def _unread_config(shown: str, finding: Finding) -> ConfigText:
    config = read_config_text("", shown)
    return ConfigText(shown, config.text, config.tree, config.message, (finding,))


_EMPTY: list[Any] = []


def _empty() -> Any:
    if not _EMPTY:
        _EMPTY.append(read_config_text("", "").message)
    return _EMPTY[0]


def steps_of(model: Model) -> tuple[str, ...]:
    """The models that an ensemble calls, each once; none of any other model."""
    return tuple(dict.fromkeys(s.model_name for s in model.message.ensemble_scheduling.step))


def names_of(tensors: Sequence[Any]) -> list[str]:
    return [tensor.name for tensor in tensors]
