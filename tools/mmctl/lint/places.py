"""Where the fields of a config.pbtxt stand in its text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mmctl.triton.textproto import Block, Field, Value

Location = Sequence[str | int]
"""Names of fields, numbers of repeated ones, and keys of maps."""


class Places:
    """Finds locations in a tree. Each block is gone through once, however often it is asked."""

    def __init__(self, tree: Block) -> None:
        self._tree = tree
        self._known: dict[int, Mapping[str, _Same]] = {}  # by identity: blocks live with the tree

    def offset(self, location: Location) -> int:
        """Offset of what stands at `location`, or of the nearest thing around it."""
        offset = self._tree.offset
        block: Block | None = self._tree
        keys = list(location)
        while keys and block is not None:
            same = self._fields(block).get(str(keys.pop(0)))
            if same is None:
                break
            offset = same.fields[-1].start
            if not same.values:
                break
            index = same.index(keys[0]) if keys else None
            entry, value = same.values[-1 if index is None else index]
            if index is not None:
                keys.pop(0)
                offset = value.offset if entry.listed else entry.start
            block = value if isinstance(value, Block) else None
        return offset

    def _fields(self, block: Block) -> Mapping[str, _Same]:
        if (found := self._known.get(id(block))) is None:
            named: dict[str, list[Field]] = {}
            for entry in block.fields:
                named.setdefault(entry.name, []).append(entry)
            found = {name: _Same(entries) for name, entries in named.items()}
            self._known[id(block)] = found
        return found


@dataclass(frozen=True)
class _Same:
    """The fields of one name in a block, in the order of the text."""

    fields: Sequence[Field]

    @cached_property
    def values(self) -> Sequence[tuple[Field, Value]]:
        return [(entry, value) for entry in self.fields for value in entry.values]

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        """Key of a map -> which of the values is the entry with it: the last one counts."""
        blocks = [(number, value) for number, (_, value) in enumerate(self.values)]
        return {
            key: number
            for number, value in blocks
            if isinstance(value, Block) and (key := _map_key(value)) is not None
        }

    def index(self, key: str | int) -> int | None:
        """Which of the values is meant: by number, or by the key of a map."""
        if isinstance(key, int):
            return key if 0 <= key < len(self.values) else None
        return self._keys.get(key)


def _map_key(block: Block) -> str | None:
    for entry in block.fields:
        if entry.name == "key" and entry.values:
            return str(entry.values[-1])
    return None
