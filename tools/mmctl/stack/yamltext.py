"""Values -> YAML, in the order given, with a comment above. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

WIDTH = 120
_MAP, _STR = "tag:yaml.org,2002:map", "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks, lists indented, no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


class Inline(dict[str, Any]):
    """A mapping on one line."""


def _inline(dumper: yaml.SafeDumper, value: Inline) -> yaml.MappingNode:
    return dumper.represent_mapping(_MAP, value, flow_style=True)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar(_STR, text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Inline, _inline)


def render_yaml(comment: str, *documents: Mapping[str, Any] | Sequence[Any]) -> str:
    """`comment` is text, without the signs that make it one."""
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    texts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
        for document in documents
    ]
    return lines + "---\n".join(texts)
