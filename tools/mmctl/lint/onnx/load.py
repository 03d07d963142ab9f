"""What keeps ONNX Runtime from opening a model, whatever its tensors are: M007, M008, M011 to M013.

An ONNX file is read as far as its shapes; its weights are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mmctl.diagnostics import Position, Rule, Severity
from mmctl.lint.completion import Served, is_onnx, onnx_config, served_files
from mmctl.lint.onnx.file import ExternalData, OnnxFile
from mmctl.lint.repository import Model, Repository, Target, join
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.onnx_backend import LoadError, check_accelerators, read_settings
from mmctl.triton.onnx_hazards import parameter_hazards
from mmctl.triton.releases import IMAGES, ONNX_RUNTIMES, onnxruntime_in


def _read(model: Model) -> Iterator[tuple[Served, OnnxFile, Position]]:
    """The files that could be read, and where to point at them."""
    for served in served_files(model):
        if served.file is not None:
            yield served, served.file, _place(model, served)


def _place(model: Model, served: Served) -> Position:
    return Position(join(model.shown, served.shown))


# ---------------------------------------------------------------- M007


def _find_external_data(model: Model, repository: Repository) -> Iterator[Mistake]:
    for served, file, at in _read(model):
        said: dict[str, list[str]] = {}
        for data in file.external:
            wrong = _wrong_outside if data.outside else _wrong_inside
            if text := wrong(data, repository.target):
                said.setdefault(text, []).append(data.tensor)
        for text, names in said.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            outside = text.startswith("outside")
            yield Mistake(
                at,
                f"`{served.shown}` has the weights of `{names[0]}`{more} {text}",
                "copy the file that the export wrote beside it, under its own name, or save the "
                "model as one file",
                Severity.WARNING if outside and repository.target.release is None else None,
            )


def _wrong_outside(data: ExternalData, target: Target) -> str:
    if not onnxruntime_in(target.release).keeps_inside:
        return ""
    since = next(row.version for row in ONNX_RUNTIMES if row.keeps_inside)
    return f"outside its folder, in `{data.location}`, which ONNX Runtime refuses from {since} on"


def _wrong_inside(data: ExternalData, _target: Target) -> str:
    where = f"in `{data.location}`"
    if not data.location:
        return "in another file without saying in which"
    if data.found is None:
        return f"{where}, which is not there"
    if data.offset is None:
        return f"{where}, at an `offset` that is no number"
    if data.size is not None and data.length not in (None, data.size):
        return f"{where}, {data.length} bytes long, and the tensor has {data.size}"
    end = data.offset + (data.size if data.length is None and data.size else data.length or 0)
    if data.offset < 0 or end > data.found:
        return f"{where} up to byte {end}, and that file has {data.found}"
    return ""


EXTERNAL_DATA = Check(
    Rule(
        "M007",
        "weights that are not there",
        "The weights lie in another file: always above 2 GB, and with newer versions of PyTorch "
        "always. It must lie beside the .onnx file, whole and under the name that the file says.",
        wrong="1/model.onnx",
        right="1/model.onnx\n1/model.onnx.data",
    ),
    _find_external_data,
)

# ---------------------------------------------------------------- M008


NEWEST_ML = 5
"""Opset of ai.onnx.ml that every ONNX Runtime of a known Triton reads, and none beyond it."""


def _find_too_new(model: Model, repository: Repository) -> Iterator[Mistake]:
    for served, file, at in _read(model):
        target = repository.target
        knows = onnxruntime_in(target.release)
        who = _who_reads(target, knows.version)
        opset = max((file.opsets.get(name, 0) for name in ("", "ai.onnx")), default=0)
        ml = file.opsets.get("ai.onnx.ml", 0)
        for what, has, most in (
            ("IR version", file.ir_version, knows.ir_version),
            ("opset", opset, knows.opset),
            ("opset of `ai.onnx.ml`", ml, NEWEST_ML),
        ):
            if has > most:
                yield Mistake(
                    at,
                    f"`{served.shown}` has {what} {has}, and {who} reads up to {most}",
                    f"set `model.ir_version = {most}` and save it again: the graph stays the same"
                    if what == "IR version"
                    else f"export it with opset {most} or lower",
                )


def _who_reads(target: Target, version: str) -> str:
    """The server for people, as far as it is known."""
    image = IMAGES.get(str(target.release))
    if image is not None and image.onnxruntime:
        return f"the ONNX Runtime {version} of {target}"
    if target.release is None or version == ONNX_RUNTIMES[-1].version:
        return f"ONNX Runtime {version}, the latest that mmctl knows,"
    return f"ONNX Runtime {version}, which is later than that of {target},"


TOO_NEW = Check(
    Rule(
        "M008",
        "ONNX file newer than the server",
        "The onnx package that wrote the file is newer than the ONNX Runtime of the release that "
        "serves it. An IR version can be lowered as it is; an opset by exporting again.",
        wrong="Triton 24.10 (ONNX Runtime 1.19): IR version 11",
        right="Triton 24.10 (ONNX Runtime 1.19): IR version 10, opset 21",
    ),
    _find_too_new,
)

# ---------------------------------------------------------------- M011


def _find_unreadable(model: Model, repository: Repository) -> Iterator[Mistake]:
    for served in served_files(model):
        if served.unreadable:
            yield Mistake(
                _place(model, served),
                f"`{served.shown}` {served.unreadable}",
                "copy it again, or export it again",
            )
        elif served.not_read and _first_not_read(model, served, repository):
            yield Mistake(
                _place(model, served),
                f"the ONNX file is not checked against its config: {served.not_read}",
                "`mmctl check --run` asks ONNX Runtime itself",
                Severity.INFO,
            )


def _first_not_read(model: Model, served: Served, repository: Repository) -> bool:
    """Whether nobody said it yet: what holds for every file is said once."""
    for other in repository.models.values():
        for file in served_files(other) if other.readable else ():
            if file.not_read == served.not_read:
                return other is model and file is served
    return True


UNREADABLE = Check(
    Rule(
        "M011",
        "file that is no ONNX model",
        "ONNX Runtime must be able to read the file: it is cut off, empty, larger than 2 GiB, or "
        "something else. Git LFS leaves a small text in place of a file that was not fetched.",
        wrong="git clone ...  # model.onnx: version https://git-lfs.github.com/spec/v1",
        right="git lfs pull",
    ),
    _find_unreadable,
)

# ---------------------------------------------------------------- M012


def _find_foreign(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if is_onnx(model) and not model.message.model_operations.op_library_filename:
        for served, file, at in _read(model):
            for domain, operator in file.foreign:
                yield Mistake(
                    at,
                    f"`{served.shown}` uses the operator `{operator}` of `{domain}`, which ONNX "
                    "Runtime does not have",
                    "name the library that has it: model_operations { op_library_filename: ... }",
                )


FOREIGN = Check(
    Rule(
        "M012",
        "operator that ONNX Runtime does not have",
        "Operators outside of ONNX and of ONNX Runtime come in a library, which the config names. "
        "It must be in the container of the server.",
        wrong='backend: "onnxruntime"',
        right='backend: "onnxruntime"\n'
        'model_operations { op_library_filename: "/opt/libortextensions.so" }',
    ),
    _find_foreign,
)

# ---------------------------------------------------------------- M013


def _find_parameters(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if not is_onnx(model) or not (
        model.message.parameters or model.message.optimization.ByteSize()
    ):
        return
    config = onnx_config(model)
    for key, value in config.parameters.items():
        at = model.at("parameters", key)
        if killed := [*parameter_hazards({key: value})]:
            yield Mistake(at, killed[0].text, "write a number or a device as the backend has it")
            continue
        try:
            read_settings(replace(config, parameters={key: value}))
        except LoadError:
            takes, hint = TAKES[key]
            yield Mistake(at, f"parameter `{key}` takes {takes}, and is `{value}`", hint)
    for number, name in enumerate(config.cpu_accelerators):
        try:
            check_accelerators(replace(config, cpu_accelerators=(name,)))
        except LoadError:
            where = ("execution_accelerators", "cpu_execution_accelerator", number)
            text = f"the ONNX backend has no accelerator `{name}` for CPUs"
            yield Mistake(model.at("optimization", *where), text, "known here: `openvino`")


NUMBER = ("a whole number", "0 means as many threads as there are cores")
SWITCH = ("true or false", "write `true` or `false`; 1, 0, on and off are taken too")
TAKES = {
    "execution_mode": ("0 or 1", "0 runs one operator at a time, 1 several"),
    "intra_op_thread_count": NUMBER,
    "inter_op_thread_count": NUMBER,
    "enable_mem_arena": SWITCH,
    "enable_mem_pattern": SWITCH,
}
"""What the backend reads when it loads a model, and how to write it."""


PARAMETERS = Check(
    Rule(
        "M013",
        "parameter that the ONNX backend cannot read",
        "The backend reads some of its parameters when it loads the model, and refuses it for a "
        "value that it does not understand; a thread count beyond 32 bits ends the whole server. "
        "Parameters that it does not know are ignored.",
        wrong='parameters { key: "enable_mem_arena" value { string_value: "yes" } }',
        right='parameters { key: "enable_mem_arena" value { string_value: "true" } }',
    ),
    _find_parameters,
)

ONNX_LOAD_CHECKS: tuple[Check, ...] = (EXTERNAL_DATA, TOO_NEW, UNREADABLE, FOREIGN, PARAMETERS)
