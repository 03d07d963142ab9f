"""Repairs of a model's folder that have one right answer: planned, judged again, shown, written.

Folders are never renamed: callers, version pins and deployments know a model by its folder, so that
of a folder and a `name` that differ, `name` is what changes.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

from mmctl.diagnostics import Finding, Severity
from mmctl.errors import InputError
from mmctl.files import write_bytes
from mmctl.lint.checker import check_repository
from mmctl.lint.configs.backends import KNOWN_BACKENDS, meant_backend
from mmctl.lint.repository import PLATFORM_BACKENDS, Model, Repository, join, read_bytes
from mmctl.lint.rules import Check
from mmctl.lint.tables import CHECKS
from mmctl.lint.text import WORD, read_config_text
from mmctl.lint.words import meant_word
from mmctl.triton.repository import CONFIG, MARKER
from mmctl.triton.schema import ROOT, FieldKind, fields_of
from mmctl.triton.textproto import Block, Field, Scalar

KEPT_BY_GIT = ".gitkeep"
"""The file in a folder that is there to be empty: git drops empty folders."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters `start` to `end` of config.pbtxt become `text`; it repairs a finding `code`."""

    code: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A folder below the model's, empty but for what keeps git from dropping it."""

    code: str
    name: str


Fix = Edit | NewFolder


@dataclass(frozen=True, slots=True)
class FixedModel:
    """A model with its repairs; `after` is what it becomes, and nothing is written yet."""

    before: Model
    after: Model
    fixes: tuple[Fix, ...]

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(fix.name for fix in self.fixes if isinstance(fix, NewFolder))


def fix_repository(
    repository: Repository, models: Iterable[str] | None = None, checks: Sequence[Check] = CHECKS
) -> tuple[FixedModel, ...]:
    """Every repair that holds: with it its finding is gone, and no new error is there.

    Of `models`, all by default. Left alone is what mmctl generates, whose source is elsewhere, and
    a template that was filled for the check. Reads files, writes none.
    """
    names = list(repository.models) if models is None else list(models)
    fixed = (_fix_model(repository.models[name], repository, checks) for name in names)
    return tuple(model for model in fixed if model.fixes)


def render_diff(models: Iterable[FixedModel]) -> str:
    """What the repairs change, as a unified diff."""
    return "".join(line for model in models for line in _diff(model))


def write_fixes(models: Iterable[FixedModel]) -> None:
    """Write what the diff shows, each file whole or not at all.

    Raises InputError, and writes nothing, where a file is no longer what was judged; WorldError
    when writing fails.
    """
    models = list(models)
    for model in models:
        if not _is_own(model.before):
            raise InputError(
                f"{join(model.before.shown, CONFIG)}: the file was changed meanwhile",
                hint="run the check again",
            )
    for model in models:
        for name in model.folders:
            write_bytes(model.before.path / name / KEPT_BY_GIT, b"")
        if model.after.config is not None:
            path = Path(os.path.realpath(model.before.path / CONFIG))  # a link stays a link
            mode = path.stat().st_mode & 0o777
            write_bytes(path, _mark(path) + _content(model.after).encode(), mode=mode)


def plan_fixes(model: Model, findings: Iterable[Finding]) -> tuple[Fix, ...]:
    """Repairs for these findings of one model, each by itself: offsets are those of now. Pure."""
    codes = {finding.code for finding in findings}
    return tuple(fix for code, plan in FIXES.items() if code in codes for fix in plan(model))


# ---------------------------------------------------------------- judging


def _fix_model(model: Model, repository: Repository, checks: Sequence[Check]) -> FixedModel:
    now, fixes = model, list[Fix]()
    own = _is_own(model)
    while own and (step := _next_fix(now, repository, checks)) is not None:
        fix, now = step
        fixes.append(fix)
    return FixedModel(model, now, tuple(fixes))


def _is_own(model: Model) -> bool:
    """Whether what is judged is what the files say, and nobody else writes them."""
    if MARKER in model.entries:
        return False
    if model.config is None:
        return True
    path = model.path / CONFIG
    try:
        return read_bytes(path) == _mark(path) + model.config.text.content.encode()
    except OSError:
        return False


def _next_fix(
    model: Model, repository: Repository, checks: Sequence[Check]
) -> tuple[Fix, Model] | None:
    before = _judge(model, repository, checks)
    for fix in plan_fixes(model, before):
        fixed = _with(model, fix, repository)
        # While the text is unreadable or the backend unknown, not all errors are seen.
        seen_all = model.readable and fix.code != "C006"
        if _holds(fix, before, _judge(fixed, repository, checks), seen_all=seen_all):
            return fix, fixed
    return None


def _judge(model: Model, repository: Repository, checks: Sequence[Check]) -> tuple[Finding, ...]:
    if repository.models[model.name] is not model:
        repository = replace(repository, models={**repository.models, model.name: model})
    return check_repository(repository, [model.name], checks)


def _holds(
    fix: Fix, before: Sequence[Finding], after: Sequence[Finding], *, seen_all: bool
) -> bool:
    """Whether the finding is gone and no error is new, if all there were have been seen."""
    found = Counter(finding.code for finding in before)
    left = Counter(finding.code for finding in after)
    return left[fix.code] < found[fix.code] and (not seen_all or _errors(after) <= _errors(before))


def _errors(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """Without their places, which an edit moves."""
    return Counter((f.code, f.message) for f in findings if f.severity is Severity.ERROR)


def _with(model: Model, fix: Fix, repository: Repository) -> Model:
    if isinstance(fix, NewFolder):
        versions = {**model.versions, int(fix.name): frozenset({KEPT_BY_GIT})}
        return replace(model, versions=versions, entries={**model.entries, fix.name: True})
    assert model.config is not None  # an edit is of its text
    content = model.config.text.content
    content = content[: fix.start] + fix.text + content[fix.end :]
    config = read_config_text(content, model.config.shown, release=repository.target.release)
    return replace(model, config=config)


def _diff(model: FixedModel) -> Iterator[str]:
    for name in model.folders:
        shown = join(model.before.shown, f"{name}/{KEPT_BY_GIT}")
        yield f"--- /dev/null\n+++ {shown}\n"
    if model.before.config is not None:
        shown = model.before.config.shown
        old, new = (_LINE.findall(_content(one)) for one in (model.before, model.after))
        for line in unified_diff(old, new, shown, shown):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def _mark(path: Path) -> bytes:
    """The byte order mark at the beginning of the file, if it has one: it is no text."""
    return codecs.BOM_UTF8 if read_bytes(path).startswith(codecs.BOM_UTF8) else b""


# ---------------------------------------------------------------- C001


def _right_words(model: Model) -> Iterator[Edit]:
    """`TYPE_FLOAT32` -> `TYPE_FP32`, where the word that was meant is beyond doubt."""
    if model.config is None:
        return
    for kind, value in _words(model.config.tree, ROOT):
        words = kind.words or {}
        text = str(value)
        meant = text if value.kind == "string" and text in words else meant_word(text, words)
        if meant is not None and (value.kind == "string" or text not in words):
            yield Edit(WORD, value.offset, _end(model.config.text.content, value), meant)


def _words(block: Block, kind: str) -> Iterator[tuple[FieldKind, Scalar]]:
    for entry in block.fields:
        field = fields_of(kind).get(entry.name)
        if field is None:
            continue
        for value in entry.values:
            if isinstance(value, Block) and field.message:
                yield from _words(value, field.message)
            elif isinstance(value, Scalar) and field.words is not None and value.kind != "number":
                yield field, value


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')


def _end(content: str, value: Scalar) -> int:
    quoted = _STRING.match(content, value.offset) if value.kind == "string" else None
    return quoted.end() if quoted else value.offset + len(str(value))


# ---------------------------------------------------------------- C005


def _right_name(model: Model) -> Iterator[Edit]:
    for entry in _fields(model, "name"):
        yield Edit("C005", entry.start, entry.end, f'name: "{model.name}"')


# ---------------------------------------------------------------- C006

PLATFORM_OF: Mapping[str, str] = {
    "onnxruntime": "onnxruntime_onnx",
    "tensorrt": "tensorrt_plan",
    "pytorch": "pytorch_libtorch",
}


def _right_backend(model: Model) -> Iterator[Edit]:
    """Each word in the field where it belongs, where only one of the two fields is wrong."""
    platform, backend = model.message.platform, model.message.backend
    if backend and (meant := meant_backend(backend)):
        if meant not in ("ensemble", "tensorflow") or backend not in PLATFORM_BACKENDS:
            yield from _written("C006", model, "backend", f'backend: "{meant}"')
        elif not platform:  # of these the platform says more than the backend
            yield from _written("C006", model, "backend", f'platform: "{backend}"')
    elif backend in PLATFORM_OF and platform not in PLATFORM_BACKENDS:
        yield from _written("C006", model, "platform", f'platform: "{PLATFORM_OF[backend]}"')
    elif not backend:
        meant = platform if platform in KNOWN_BACKENDS else meant_backend(platform)
        if meant and platform not in PLATFORM_BACKENDS:
            yield from _written("C006", model, "platform", f'backend: "{meant}"')


def _written(code: str, model: Model, name: str, text: str) -> Iterator[Edit]:
    for entry in _fields(model, name):
        yield Edit(code, entry.start, entry.end, text)


# ---------------------------------------------------------------- B003


def _fitting_sizes(model: Model) -> Iterator[Edit]:
    """Preferred sizes above the maximum can never occur: without them the same is preferred."""
    limit = model.message.max_batch_size
    if limit <= 0:
        return
    places = (("dynamic_batching",), ("sequence_batching", "oldest"))
    for entry in (e for place in places for e in _fields(model, *place, "preferred_batch_size")):
        sizes = [str(value) for value in entry.values]
        plain = all(re.fullmatch(r"[1-9][0-9]*", size) for size in sizes)
        if "#" in _content(model)[entry.start : entry.end] or not plain:
            continue  # a remark, or a number in another notation: whoever wrote it should see to it
        kept = [size for size in sizes if int(size) <= limit]
        if kept == sizes:
            continue
        if kept:
            text = f"preferred_batch_size: [ {', '.join(kept)} ]"
            yield Edit("B003", entry.start, entry.end, text)
        else:
            yield Edit("B003", *_whole(_content(model), entry), "")


def _whole(content: str, entry: Field) -> tuple[int, int]:
    """The field with its separator and the blanks that go with it; its line where it is alone."""
    end = entry.end
    if separator := re.compile(r"[ \t]*[,;]").match(content, end):
        end = separator.end()
    line = content.rfind("\n", 0, entry.start) + 1
    newline = re.compile(r"[ \t]*\r?\n").match(content, end)
    if newline and not content[line : entry.start].strip():
        return line, newline.end()
    blank = re.compile(r"[ \t]*").match(content, end)
    return entry.start, blank.end() if blank else end


# ---------------------------------------------------------------- E014


def _latest_version(model: Model) -> Iterator[Edit]:
    """A step without `model_version` asks for version 0; who leaves it out means the latest."""
    content = _content(model)
    for step in _blocks(model, "ensemble_scheduling", "step"):
        given = {entry.name: entry for entry in step.fields}
        name = given.get("model_name")
        if name is None or "model_version" in given:
            continue
        indent = content[content.rfind("\n", 0, name.start) + 1 : name.start]
        if indent.strip():
            yield Edit("E014", name.end, name.end, " model_version: -1")
        else:
            separator = re.compile(r"[ \t]*[,;]").match(content, name.end)
            at = separator.end() if separator else name.end
            newline = "\r\n" if "\r\n" in content else "\n"
            yield Edit("E014", at, at, f"{newline}{indent}model_version: -1")


# ---------------------------------------------------------------- R002


def _version_folder(model: Model) -> Iterator[NewFolder]:
    """An ensemble has nothing in its version folder; what belongs into another's is not known."""
    if model.is_ensemble and not model.versions:
        wanted = model.message.version_policy.specific.versions
        yield NewFolder("R002", str(wanted[0]) if wanted and wanted[0] >= 0 else "1")


# ---------------------------------------------------------------- the text


def _content(model: Model) -> str:
    return model.config.text.content if model.config else ""


def _fields(model: Model, *location: str) -> Iterator[Field]:
    """The fields of that name in all blocks on the way to it."""
    for block in _blocks(model, *location[:-1]):
        yield from (entry for entry in block.fields if entry.name == location[-1])


def _blocks(model: Model, *location: str) -> list[Block]:
    blocks = [model.config.tree] if model.config else []
    for name in location:
        values = [v for b in blocks for e in b.fields if e.name == name for v in e.values]
        blocks = [value for value in values if isinstance(value, Block)]
    return blocks


FIXES: Mapping[str, Callable[[Model], Iterator[Fix]]] = {
    WORD: _right_words,
    "C005": _right_name,
    "C006": _right_backend,
    "B003": _fitting_sizes,
    "E014": _latest_version,
    "R002": _version_folder,
}
"""Code -> what repairs it. Only repairs with one right answer."""
