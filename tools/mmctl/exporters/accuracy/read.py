"""Samples to calibrate with and to prove on, from the workspace's folder calibration/.

A generator (`photos:held_out` is the function `held_out` of calibration/photos.py) yields dicts of
arrays by input name, rows in front; with labels, {"inputs": {...}, "labels": array or dict}. One
that takes a parameter is given the folder of the fetched model packages. A file is an .npz with one
array per input, and maybe `labels`; or .jsonl with one recorded inference request of Triton's HTTP
protocol a line.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.accuracy.data import OwnMetric, Sample
from mmctl.exporters.accuracy.origin import file_of
from mmctl.exporters.functions import call, failed_in, load_function, seed
from mmctl.tensors import Array, dtype_from_triton
from mmctl.workspace import PACKAGES

MAX_ROWS = 50_000
LABELS = "labels"


def load_samples(root: Path, address: str) -> list[Sample]:
    """All samples of a generator or a file. Raises InputError for what cannot be read."""
    path = file_of(root, address)
    try:
        samples = list(_taken(_given(root, path, address)))
    except InputError as error:
        raise InputError(f"`{address}`: {error.message}", hint=error.hint) from error
    if not samples:
        raise InputError(f"`{address}` gives no samples")
    return samples


def _given(root: Path, path: Path, address: str) -> Iterator[Any]:
    """What the generator yields, or the file holds, as it is."""
    _module, colon, function = address.partition(":")
    if colon:
        return _generated(path, function, root / PACKAGES)
    return _READERS[path.suffix](path)


def _taken(given: Iterable[Any]) -> Iterator[Sample]:
    rows = 0
    for index, value in enumerate(given):
        sample = _sample_of(value, f"sample {index}")
        rows += max((len(array) for array in sample.inputs.values() if array.ndim), default=1)
        if rows > MAX_ROWS:
            raise InputError(f"more than {MAX_ROWS} rows", hint="let the generator end")
        yield sample


def _sample_of(value: Any, where: str) -> Sample:
    if not isinstance(value, Mapping) or not value:
        raise InputError(
            f"{where} is a {type(value).__name__}", hint="yield dicts: {input name: array}"
        )
    if "inputs" in value and isinstance(value["inputs"], Mapping):
        inputs, labels = value["inputs"], value.get(LABELS)
    else:
        inputs, labels = value, None
    if labels is not None and not isinstance(labels, Mapping):
        labels = {"": labels}
    return Sample(_arrays(inputs, where), _arrays(labels or {}, f"{where}, labels"))


def _arrays(named: Mapping[str, Any], where: str) -> dict[str, Array]:
    found = {}
    for name, value in named.items():
        try:
            found[str(name)] = np.asarray(value)
        except ValueError as error:
            raise InputError(f"{where}: `{name}` is no array: {error}") from error
    return found


def _generated(path: Path, name: str, packages: Path) -> Iterator[Any]:
    function = load_function(path, name)
    seed()
    try:
        yield from call(function, packages)
    except Exception as error:  # the user's code may raise anything
        raise failed_in(path, error) from error


def _archived(path: Path) -> Iterator[Any]:
    try:
        with np.load(path) as archive:
            arrays = dict(archive)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot be read as .npz: {error}") from error
    labels = arrays.pop(LABELS, None)
    yield {"inputs": arrays, LABELS: labels}


def _recorded(path: Path) -> Iterator[Any]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            yield {t["name"]: _tensor(t) for t in json.loads(line)["inputs"]}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"line {number} is no inference request: {error}") from error


def _tensor(entry: Mapping[str, Any]) -> Array:
    dtype = dtype_from_triton(entry["datatype"]).numpy
    return np.array(entry["data"], dtype=dtype).reshape(entry["shape"])


_READERS = {".npz": _archived, ".jsonl": _recorded}


def load_metric(root: Path, address: str) -> OwnMetric:
    """The user's metric; what it raises becomes an InputError with its line."""
    path = file_of(root, address)
    function = load_function(path, address.partition(":")[2])

    def score(answers: Mapping[str, Array], labels: Any) -> Any:
        try:
            return function(answers, labels)
        except Exception as error:  # the user's code may raise anything
            raise failed_in(path, error) from error

    return score
