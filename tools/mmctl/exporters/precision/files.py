"""Writing a converted file: same signature, marked as ours, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmctl.errors import InputError, MmctlError, WorldError
from mmctl.exporters.graph import real_inputs
from mmctl.exporters.onnx_file import first_line, open_session
from mmctl.exporters.precision.base import Conversion
from mmctl.files import digest_of, sha256_file, writing_to

MARK = "mmctl."
"""Prefix of the metadata that says how a file was made."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def scratch(work: Path) -> Iterator[None]:
    """Converters leave files in the current folder, write into the temporary one, warn, log and
    print: all of that goes to `work`, or nowhere.

    Raises InputError for what they raise, and WorldError when the disk was full.
    """
    before = tempfile.tempdir
    with warnings.catch_warnings(), contextlib.chdir(work), _silence():
        warnings.simplefilter("ignore")
        tempfile.tempdir = str(work)
        try:
            yield
        except MmctlError:
            raise
        except Exception as error:  # the converters' own have no common base
            raise _explained(error, work) from error
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _explained(error: Exception, work: Path) -> MmctlError:
    words = [os.strerror(number) for number in FULL]
    if isinstance(error, OSError) or any(word in str(error) for word in words):
        reason = next((word for word in words if word in str(error)), first_line(error))
        return WorldError(
            f"{work}: cannot write: {reason}",
            hint="free some space; what was there before is unchanged",
        )
    return InputError(f"the model cannot be converted: {type(error).__name__}: {first_line(error)}")


def save(model: Any, path: Path, inline_bytes: int) -> None:
    """Above `inline_bytes` the weights go into `<name>.data` beside the file."""
    import onnx

    if model.ByteSize() <= inline_bytes:
        onnx.save(model, path)
        return
    beside = f"{path.name}.data"
    path.with_name(beside).unlink(missing_ok=True)  # onnx would append to it
    onnx.save(model, path, save_as_external_data=True, location=beside)


def finish(
    conversion: Conversion, model: Any, stage: str, method: Mapping[str, Any]
) -> dict[str, Any]:
    """Mark the graph, prove that callers see no difference, and put it where it belongs.

    Returns `method` with the name of the stage, for the lock.
    """
    keep_signature(conversion.source, model)
    _mark(model, conversion.source, stage, method)
    with writing_to(conversion.target):
        folder = Path(tempfile.mkdtemp(dir=conversion.target.parent, prefix=".converted."))
    try:
        with writing_to(conversion.target):
            save(model, folder / conversion.target.name, conversion.inline_bytes)
        open_session(folder / conversion.target.name)
        with writing_to(conversion.target):
            # Weights first: a file without them would be half a model.
            for path in sorted(folder.iterdir(), key=lambda path: path.suffix != ".data"):
                path.replace(conversion.target.with_name(path.name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"stage": stage, **method}


def _mark(model: Any, source: Path, stage: str, method: Mapping[str, Any]) -> None:
    """The source's own metadata, which some converters drop, and ours; no time and no machine."""
    import onnx

    own = onnx.load(source, load_external_data=False).metadata_props
    kept = {entry.key: entry.value for entry in own if not entry.key.startswith(MARK)}
    ours = {
        f"{MARK}stage": stage,
        f"{MARK}source_sha256": source_digest(source),
        f"{MARK}method": json.dumps(method, sort_keys=True),
    }
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, kept | ours)


def source_digest(path: Path) -> str:
    """SHA-256 of the file; with external data, of the file and its data together."""
    beside = [path.with_name(name) for name in external_files(path)]
    if not beside:
        return sha256_file(path)
    return digest_of({file.name: sha256_file(file) for file in (path, *beside)})


def external_files(path: Path) -> list[str]:
    """Names of the files beside it that hold its weights."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    return sorted(
        {
            entry.value
            for tensor in model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def keep_signature(source: Path, model: Any) -> None:
    """Symbolic dims get the names back that optimizers gave them anew.

    Raises InputError when anything else differs from the source: names, types, dims.
    """
    import onnx

    before = _values(onnx.load(source, load_external_data=False))
    after = _values(model)
    for name in before | after:
        if name not in before or name not in after or _kind(before[name]) != _kind(after[name]):
            raise InputError(
                f"the conversion would change `{name}` from {_shown(before.get(name))} "
                f"to {_shown(after.get(name))}",
                hint="name the node that gives it in `quantize.exclude_nodes`",
            )
        after[name].CopyFrom(before[name])


def _values(model: Any) -> dict[str, Any]:
    return {value.name: value for value in (*real_inputs(model), *model.graph.output)}


def _kind(value: Any) -> tuple[int, list[int]]:
    tensor = value.type.tensor_type
    return tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]


def _shown(value: Any) -> str:
    import onnx

    if value is None:
        return "nothing"
    kind, dims = _kind(value)
    return f"{onnx.TensorProto.DataType.Name(kind)}{[dim or -1 for dim in dims]}"
