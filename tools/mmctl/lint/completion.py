"""Configs as Triton completes them when it loads a model, as far as files tell without a server.

Only ONNX models can be completed here. Where ONNX Runtime may know more of an output than the file
does, what follows from it is unknown: a section is then left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmctl.lint.onnx.file import NotRead, OnnxFile, Unreadable, read_onnx
from mmctl.lint.onnx.graph import Port
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model
from mmctl.triton.onnx_backend import (
    BACKEND,
    Config,
    LoadError,
    Tensor,
    complete,
    model_tensor,
    read_config,
)
from mmctl.triton.pbtxt import add_json, json_of_message, new_message

BESIDE = "model.onnx"
"""What is opened where the file of a version is a folder."""


@dataclass(frozen=True, slots=True)
class Served:
    """A version that Triton loads and its ONNX file; `file` is None where there is nothing to
    say of it, and `unreadable` says why it is no ONNX model. `shown` is its path below the model.
    """

    version: int
    path: Path
    shown: str
    file: OnnxFile | None
    unreadable: str = ""
    not_read: str = ""


@dataclass(frozen=True, slots=True)
class Completed:
    """`config` is what the backend then obeys, `refused` why Triton refuses to complete.

    `changes` are the completed fields in JSON form, and `max_batch_known` tells whether
    `config.max_batch` is what Triton has in the end.
    """

    config: Config
    changes: Mapping[str, Any] = field(default_factory=dict)
    inputs_known: bool = True
    outputs_known: bool = True
    max_batch_known: bool = True
    refused: LoadError | None = None

    @property
    def batch_was_set(self) -> bool:
        """Whether max_batch_size comes from Triton, not from the config."""
        return "max_batch_size" in self.changes


def is_onnx(model: Model) -> bool:
    return model.backend == BACKEND


@remembered
def served_files(model: Model) -> tuple[Served, ...]:
    """The ONNX files of the versions that Triton loads, ascending; missing ones left out."""
    if not is_onnx(model):
        return ()
    return tuple(found for v in model.served_versions if (found := _served(model, v)) is not None)


def _served(model: Model, version: int) -> Served | None:
    name = model.model_filename
    if name.split("/")[0] not in (*model.versions[version], ".", ".."):
        return None
    home = os.path.normpath(model.path)
    path = Path(os.path.normpath(f"{home}/{version}/{name}"))
    try:
        if path.is_dir():
            path, name = path / BESIDE, f"{name}/{BESIDE}"
        if not path.is_relative_to(home) or not path.exists():
            return None
        return Served(version, path, f"{version}/{name}", read_onnx(path))
    except Unreadable as error:
        return Served(version, path, f"{version}/{name}", None, unreadable=str(error))
    except NotRead as error:
        return Served(version, path, f"{version}/{name}", None, not_read=str(error))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name cannot be one"
        return Served(version, path, f"{version}/{name}", None, unreadable=f"cannot be read: {why}")


@remembered
def onnx_config(model: Model) -> Config:
    """The fields of the config that the ONNX backend obeys, as they are written."""
    return read_config(json_of_message(model.message), model.name)


def tensors(ports: Iterable[Port]) -> tuple[Tensor, ...]:
    return tuple(model_tensor(port.name, port.kind, port.shape or ()) for port in ports)


def complete_config(config: Config, file: OnnxFile) -> Completed:
    """What Triton makes of a config for this file."""
    if config.specified:
        return Completed(config)
    inputs = tensors(file.inputs)
    # An output of which nothing is known does not stand against a batch.
    outputs = tuple(
        tensor if port.shape is not None else replace(tensor, shape=(-1,))
        for port, tensor in zip(file.outputs, tensors(file.outputs), strict=True)
    )
    try:
        done = complete(config, inputs, outputs)
    except LoadError as error:
        given = bool(config.inputs), bool(config.outputs)
        return Completed(config, {}, *given, max_batch_known=config.max_batch > 0, refused=error)
    doubtful = any(port.shape is None or 0 in port.unsure for port in file.outputs)
    unbatched = any(tensor.shape[:1] != (-1,) for tensor in (*inputs, *outputs))
    known = unbatched or config.max_batch > 0 or not doubtful
    settled = all(_settled_below(port, batched=config.max_batch > 0) for port in file.outputs)
    changes = {
        key: value for key, value in done.changes.items() if known and (key != "output" or settled)
    }
    completed = read_config(changes)
    return Completed(
        replace(
            config,
            max_batch=changes.get("max_batch_size", config.max_batch),
            inputs=completed.inputs or config.inputs,
            outputs=completed.outputs or config.outputs,
            scheduled=config.scheduled or completed.scheduled,
        ),
        changes,
        inputs_known=known or bool(config.inputs),
        outputs_known=(known and settled) or bool(config.outputs),
        max_batch_known=known,
    )


def _settled_below(port: Port, *, batched: bool) -> bool:
    """Whether the axes are known that a config would have; a batch axis is open or refused."""
    return port.shape is not None and port.unsure <= ({0} if batched else frozenset())


@remembered
def _completion(model: Model) -> tuple[Any, tuple[bool, bool, bool]]:
    message = model.message
    given = bool(message.input), bool(message.output)
    if not is_onnx(model):
        return message, (*given, all(given) or message.max_batch_size > 0)
    files = [served.file for served in served_files(model) if served.file is not None]
    if all(given) or not files:
        return message, (*given, all(given) or message.max_batch_size > 0)
    done = complete_config(onnx_config(model), files[-1])
    filled = new_message()
    filled.CopyFrom(message)
    add_json(filled, done.changes)
    return filled, (done.inputs_known, done.outputs_known, done.max_batch_known)


def completed(model: Model) -> Any:
    """Triton's ModelConfig as it is after the model was loaded, sections left out that only a
    server can fill: `sides_known` says which.
    """
    return _completion(model)[0]


def sides_known(model: Model) -> tuple[bool, bool]:
    """Whether the inputs and the outputs of `completed` are those that Triton will have."""
    inputs, outputs, _ = _completion(model)[1]
    return inputs, outputs


def max_batch_known(model: Model) -> bool:
    return _completion(model)[1][2]
