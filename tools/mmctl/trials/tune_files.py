"""Batching and instances in the files that people write: only these keys change. Pure.

The text is edited where YAML says that a value stands, so that comments, order and quotes of all
else stay. What comes out is read again: it has to say what was meant, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, cast

import yaml

from mmctl.errors import InputError
from mmctl.loadtest.simulate import Setting

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the settings of a model are written: `node` of a pipeline.yaml, or a model.yaml."""

    file: str
    node: str | None = None

    @property
    def path(self) -> Path:
        return ("nodes", self.node) if self.node else ()


def changes(was: Setting, now: Setting) -> dict[Path, str]:
    """Keys below a place, and what they become."""
    found: dict[Path, str] = {}
    if now.max_batch != was.max_batch:
        found["batching", "max_batch"] = str(now.max_batch)
    if now.delay != was.delay:
        found["batching", "max_delay_ms"] = f"{now.delay * 1000:g}"
    if now.instances != was.instances:
        found["instances", "cpu"] = str(now.instances)
    return found


def retuned(text: str, place: Place, was: Setting, now: Setting) -> str:
    """The file with the settings `now`. Raises InputError when it is written in a way that cannot
    be edited safely; the hint says what to write by hand.
    """
    wanted = changes(was, now)
    before = yaml.load(text, Loader=yaml.BaseLoader)
    after = text
    for path, value in wanted.items():
        after = set_value(_without_preset(after, place, was), (*place.path, *path), value)
    if "preferred" in _batching(after, place):
        after = _fitting_preferred(after, place, now.max_batch)
    if yaml.load(after, Loader=yaml.BaseLoader) != _expected(before, place, was, now, wanted):
        told = ", ".join(f"`{'.'.join(path)}: {value}`" for path, value in wanted.items())
        raise InputError(f"{place.file}: too unusual to be edited", hint=f"write {told} yourself")
    return after


def render_diff(file: str, before: str, after: str) -> str:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(unified_diff(old, new, file, file, n=1))


def set_value(text: str, path: Path, value: str) -> str:
    """A scalar at `path` becomes `value`; mappings that are missing on the way are made."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    for depth, key in enumerate(path):
        found = next((v for k, v in node.value if k.value == key), None)
        if found is None:
            return _insert(text, node, f"{key}: {_nested(path[depth + 1 :], value)}")
        if not isinstance(found, yaml.MappingNode):
            return _replace(text, found, _nested(path[depth + 1 :], value))
        node = found
    return _replace(text, node, value)


def _nested(path: Path, value: str) -> str:
    return f"{{{path[0]}: {_nested(path[1:], value)}}}" if path else value


def _replace(text: str, node: yaml.Node, value: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    space = " " if start == end and text[start - 1 : start] == ":" else ""  # there was no value
    return text[:start] + space + value + text[end:]


def _insert(text: str, node: yaml.MappingNode, entry: str) -> str:
    """As the last entry of a mapping."""
    if node.flow_style:
        if not node.value:
            start = node.start_mark.index + 1
            return f"{text[:start]}{entry}{text[start:]}"
        end = node.value[-1][1].end_mark.index
        return f"{text[:end]}, {entry}{text[end:]}"
    indent = " " * node.value[0][0].start_mark.column
    end = _last_of(node).end_mark.index
    if not text[:end].endswith("\n"):
        line = text.find("\n", end)
        end = len(text) if line < 0 else line + 1
    before = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
    return f"{before}{indent}{entry}\n{text[end:]}"


def _last_of(node: yaml.Node) -> yaml.Node:
    """The last value in the text: a block mapping ends only where the next thing begins."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _batching(text: str, place: Place) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], _at(yaml.load(text, Loader=yaml.BaseLoader), place, "batching"))


def _at(data: Any, place: Place, key: str) -> Any:
    for name in place.path:
        data = data[name]
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _without_preset(text: str, place: Place, was: Setting) -> str:
    """`batching: throughput` says two things: what is not changed has to stay."""
    data = yaml.load(text, Loader=yaml.BaseLoader)
    for name in place.path:
        data = data[name]
    if not isinstance(data.get("batching"), str) or not data["batching"]:
        return text
    return set_value(text, (*place.path, "batching"), _whole(was))


def _whole(setting: Setting) -> str:
    return f"{{max_batch: {setting.max_batch}, max_delay_ms: {setting.delay * 1000:g}}}"


def _fitting_preferred(text: str, place: Place, most: int) -> str:
    sizes = [size for size in _batching(text, place)["preferred"] if int(size) <= most]
    if sizes == _batching(text, place)["preferred"]:
        return text
    return set_value(text, (*place.path, "batching", "preferred"), f"[{', '.join(sizes)}]")


def _expected(
    before: Any, place: Place, was: Setting, now: Setting, wanted: Mapping[Path, str]
) -> Any:
    """What the file says with the changes, as plain data."""
    data = json.loads(json.dumps(before))  # a copy, in which anchors are no longer shared
    inner = data
    for name in place.path:
        inner = inner[name]
    if wanted and isinstance(inner.get("batching"), str) and inner["batching"]:
        inner["batching"] = yaml.load(_whole(was), Loader=yaml.BaseLoader)
    for (key, name), value in wanted.items():
        if not isinstance(inner.get(key), dict):
            inner[key] = {}
        inner[key][name] = value
    batching = inner.get("batching")
    if isinstance(batching, dict) and "preferred" in batching:
        batching["preferred"] = [n for n in batching["preferred"] if int(n) <= now.max_batch]
    return data
