"""Sample requests: ensembles/<pipeline>/samples/NAME.json, one file, one request.

    {"inputs": {"text": "..", "image": {"file": "a.jpg"}, "x": {"npy": "x.npy"}}, "batch": 1,
     "expect": {"label": "block", "score": {"near": 0.93, "abs": 0.02}}}

Paths are relative to the file. `batch` is the number of rows: above 1, values and expectations
are lists of that many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from mmctl.client.sources import FromFile, FromNpy, Source, read_source, source_text
from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.files import read_text
from mmctl.tensors import Array

_KEYS = ("inputs", "batch", "expect")
_FILES: Mapping[str, Callable[[Path], Source]] = {"file": FromFile, "npy": FromNpy}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One request, and what its answer should be by output name. Files are read already."""

    name: str
    sources: Mapping[str, Source]
    inputs: Mapping[str, object]
    batch: int
    expect: Mapping[str, object]

    @property
    def shown(self) -> dict[str, str]:
        """The inputs in few words: text as it is, files by their names."""
        return {name: source_text(source) for name, source in self.sources.items()}


def read_samples(folder: Path) -> list[Sample]:
    """Every sample of a pipeline, by name; none when the folder does not exist."""
    return [read_sample(path) for path in sorted(folder.glob("*.json"))]


def find_sample(folder: Path, name: str) -> Sample:
    """Raises InputError, with the nearest name, when there is none."""
    paths = {path.stem: path for path in folder.glob("*.json")}
    if name not in paths:
        raise InputError(
            f"{folder}: no sample `{name}`",
            hint=nearest(name, paths) or f"write {folder / 'NAME.json'}",
        )
    return read_sample(paths[name])


def read_sample(path: Path) -> Sample:
    """Raises InputError for a file that is no sample, and when a file that it names is missing."""
    data = _read_json(path)
    if unknown := [key for key in data if key not in _KEYS]:
        raise InputError(f"{path}: unknown key `{unknown[0]}`", hint=nearest(unknown[0], _KEYS))
    batch = data.get("batch", 1)
    if type(batch) is not int or batch < 1:
        raise InputError(f"{path}: `batch` is the number of rows, at least 1, not `{batch}`")
    sources = {
        name: _source_of(value, path.parent, f"{path}: `{name}`")
        for name, value in _mapping(data, "inputs", path).items()
    }
    inputs = {name: read_source(source, f"{path}: `{name}`") for name, source in sources.items()}
    if batch > 1:
        _refuse_other_rows(inputs, batch, path)
    return Sample(path.stem, sources, inputs, batch, _expectations(data, path))


@contextmanager
def naming(sample: Sample) -> Iterator[None]:
    """What is wrong with the inputs of a sample is told with its name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"sample `{sample.name}`: {error.message}", hint=error.hint) from error


def compare(outputs: Mapping[str, Array], expect: Mapping[str, object]) -> list[str]:
    """Where an answer is not what was expected, one sentence each; empty when all is well.

    An expectation is a value, nested lists, or {"near": value, "abs": tolerance}. Axes of length
    1 do not count, so that "block" is the same as [["block"]].
    """
    return [
        difference
        for name, wanted in expect.items()
        if (difference := _difference(name, outputs.get(name), wanted)) is not None
    ]


def _difference(name: str, array: Array | None, wanted: Any) -> str | None:
    if array is None:
        return f"`{name}`: not among the outputs"
    tolerance = 0.0
    if isinstance(wanted, dict):
        wanted, tolerance = wanted["near"], wanted["abs"]
    expected: Any = np.array(wanted, dtype=object).squeeze()
    given = array.squeeze()
    if expected.shape != given.shape:
        return f"`{name}`: shape {list(expected.shape)} expected, {list(given.shape)} came"
    for index in np.ndindex(expected.shape):
        if not _agree(given[index], expected[index], tolerance):
            place = f"[{','.join(map(str, index))}]" if index else ""
            within = f" within {tolerance:g}" if tolerance else ""
            wanted, came = _told(expected[index]), _told(given[index])
            return f"`{name}{place}`: {wanted}{within} expected, {came} came"
    return None


def _told(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value)


def _agree(given: Any, wanted: object, tolerance: float) -> bool:
    if not isinstance(given, np.number) or not isinstance(wanted, int | float):
        return bool(given == wanted)
    if math.isnan(wanted):
        return math.isnan(given)
    if isinstance(given, np.floating):
        with np.errstate(over="ignore"):
            if given == type(given)(wanted):  # 0.93 in a file and the fp32 next to it are the same
                return True
    return bool(abs(given.item() - wanted) <= tolerance)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg.lower()}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a sample", hint='write {"inputs": {...}}')
    return data


def _mapping(data: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{path}: `{key}` is not a mapping from tensor names to values")
    return value


def _expectations(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    expect = _mapping(data, "expect", path)
    for name, wanted in expect.items():
        if isinstance(wanted, dict) and not (
            wanted.keys() == {"near", "abs"} and isinstance(wanted["abs"], int | float)
        ):
            raise InputError(
                f"{path}: `{name}`: not an expectation",
                hint='write the value, or {"near": 0.93, "abs": 0.02}',
            )
    return expect


def _source_of(value: Any, folder: Path, where: str) -> Source:
    if isinstance(value, list):
        return [_source_of(item, folder, where) for item in value]
    if not isinstance(value, dict):
        return cast(Source, value)
    if len(value) == 1 and (kind := _FILES.get(key := next(iter(value)))):
        return kind(folder / str(value[key]))
    raise InputError(
        f"{where}: not a value",
        hint='write the value, or {"file": "a.jpg"} for bytes, or {"npy": "x.npy"} for an array',
    )


def _refuse_other_rows(inputs: Mapping[str, object], batch: int, path: Path) -> None:
    for name, value in inputs.items():
        rows = len(value) if isinstance(value, list | np.ndarray) else 1
        if rows != batch:
            raise InputError(
                f"{path}: `{name}` has {rows} rows, and `batch` is {batch}",
                hint="write a list with one value per row",
            )
