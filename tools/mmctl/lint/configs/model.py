"""What a config.pbtxt says of the model as a whole: C005 to C009, C015, C019.

Source of the rules: model_config_utils.cc of Triton's core, 24.10. Triton's clients only hear
`failed to poll from model repository`; the reason is in the server's log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches

from mmctl.diagnostics import Position, Rule, Severity, nearest
from mmctl.lint.configs.backends import (
    KNOWN_BACKENDS,
    OWN_PLATFORM,
    PLATFORMS_SINCE,
    backend_of_name,
    brings_backend,
    meant_backend,
)
from mmctl.lint.repository import (
    FILE_BACKENDS,
    PLATFORM_BACKENDS,
    SOURCE,
    SPECIAL_FOLDERS,
    Model,
    Repository,
    join,
)
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.repository import CONFIG

# ---------------------------------------------------------------- C005


def _find_other_name(model: Model, _repository: Repository) -> Iterator[Mistake]:
    given = model.message.name
    if given and given != model.name:
        yield Mistake(
            model.at("name"),
            f"the config names the model `{given}`, and its folder is `{model.name}`",
            f'write `name: "{model.name}"`, or leave the line out',
        )


OTHER_NAME = Check(
    Rule(
        "C005",
        "name other than the folder's",
        "`name` must be the name of the model's folder. Left out, Triton takes the folder's name.",
        wrong='name: "ranker"  # in ranker_v2/config.pbtxt',
        right='name: "ranker_v2"',
    ),
    _find_other_name,
)

# ---------------------------------------------------------------- C006


def _find_mixed_words(model: Model, repository: Repository) -> Iterator[Mistake]:
    message = model.message
    platform, backend = message.platform, message.backend
    if model.is_ensemble or brings_backend(model, backend):
        return
    if backend and (meant := meant_backend(backend)):
        kind = "a platform" if backend in PLATFORM_BACKENDS else "no backend"
        field = "platform" if meant == "ensemble" else "backend"
        yield Mistake(model.at("backend"), f"`{backend}` is {kind}", f'write `{field}: "{meant}"`')
    elif not backend and platform and not _is_platform(platform, model, repository):
        yield Mistake(
            model.at("platform"), f"unknown platform `{platform}`", _backend_hint(platform)
        )
    elif (
        platform
        and model.backend in OWN_PLATFORM
        and PLATFORM_BACKENDS.get(platform) != model.backend
    ):
        yield Mistake(
            model.at("platform"),
            f"the platform `{platform}` does not belong to the backend `{model.backend}`",
            "leave `platform` out",
        )


def _is_platform(platform: str, model: Model, repository: Repository) -> bool:
    release = repository.target.release
    if release is not None and platform in PLATFORMS_SINCE:
        return release >= PLATFORMS_SINCE[platform]
    return model.backend != ""  # by the platform, or by the name of the model's file


def _backend_hint(platform: str) -> str | None:
    if platform in KNOWN_BACKENDS:
        return f'write `backend: "{platform}"`'
    if meant := meant_backend(platform):
        return f'write `backend: "{meant}"`'
    return nearest(platform, PLATFORM_BACKENDS)


MIXED_WORDS = Check(
    Rule(
        "C006",
        "platform and backend mixed up",
        "`backend` names what runs the model (python, onnxruntime, tensorrt, pytorch, openvino); "
        "`platform` is an older word for backend and format together (onnxruntime_onnx, "
        "tensorrt_plan, pytorch_libtorch) and is only needed for an ensemble. Write `backend` and "
        "leave `platform` out.",
        wrong='platform: "python"',
        right='backend: "python"',
    ),
    _find_mixed_words,
)

# ---------------------------------------------------------------- C007

MISSPELT = ("config.pbtext", "config.pbtx", "config.pbxt", "config.pb.txt", "config.prototxt")


def _find_no_backend(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    if model.findings:
        return  # what cannot be read may tell it
    misplaced = list(_misplaced_configs(model)) if model.config is None else []
    undecided = not (model.backend or message.platform or _file_elsewhere(model))
    if misplaced and not undecided:
        place, where, hint = misplaced[0]
        yield Mistake(place, f"{where} is never read", hint, Severity.WARNING)
    elif misplaced:
        place, _, hint = misplaced[0]
        yield Mistake(
            place,
            f"could not determine the backend of `{model.name}`: neither `backend` nor `platform` "
            f"is given, as {_unread(misplaced)}",
            hint,
        )
    elif undecided and model.config is None and SOURCE in model.entries:
        yield Mistake(
            Position(join(model.shown, SOURCE)),
            f"`{model.name}` was never exported: there is nothing yet that Triton could load",
            f"run `mmctl export {model.name}`",
            Severity.WARNING,
        )
    elif undecided and model.config is None:
        yield Mistake(
            model.at(),
            f"could not determine the backend of `{model.name}`: there is no config.pbtxt, and no "
            "model file whose name tells it",
            "add a config.pbtxt, or move what is no model out of the repository",
        )
    elif undecided:
        yield Mistake(
            model.at("default_model_filename"),
            f"could not determine the backend of `{model.name}`: neither `backend` nor `platform` "
            f"is given, and {_why_no_file(model)}",
            'write `backend: "..."`, or name the folder `NAME.BACKEND`',
        )


def _unread(misplaced: list[tuple[Position, str, str]]) -> str:
    return " and ".join(where for _, where, _ in misplaced[:2]) + " is never read"


def _why_no_file(model: Model) -> str:
    given = model.message.default_model_filename
    return (
        f"`{given}` tells it as little"
        if given
        else "there is no model file whose name tells it in the first version"
    )


def _file_elsewhere(model: Model) -> bool:
    """Whether Triton finds a model file in a folder that is no version: it looks into the first."""
    folders = sorted(name for name, is_folder in model.entries.items() if is_folder)
    if model.versions or model.message.default_model_filename or not folders:
        return False
    return any(name in FILE_BACKENDS for name in _names(model, folders[0]))


def _misplaced_configs(model: Model) -> Iterator[tuple[Position, str, str]]:
    """Configs that Triton does not see: where they are, what to call them, what to do."""
    for name, is_folder in sorted(model.entries.items()):
        if not is_folder and (name in MISSPELT or get_close_matches(name, [CONFIG], 1, 0.85)):
            yield Position(join(model.shown, name)), f"`{name}`", f"rename it to `{CONFIG}`"
    for version in sorted(model.versions):
        if CONFIG in model.versions[version]:
            place = Position(join(model.shown, f"{version}/{CONFIG}"))
            hint = f"move it up, beside the folder `{version}`"
            yield place, f"`{version}/{CONFIG}`", hint
    inner = [
        name
        for name, is_folder in sorted(model.entries.items())
        if is_folder and not name.isdigit() and name not in SPECIAL_FOLDERS
    ]
    for name in inner[:50]:
        if CONFIG in _names(model, name):
            place = Position(join(model.shown, f"{name}/{CONFIG}"))
            hint = f"models stand right below the repository: serve `{model.shown}`, or move them"
            yield place, f"`{name}/{CONFIG}`", hint


def _names(model: Model, folder: str) -> list[str]:
    try:
        return os.listdir(model.path / folder)
    except OSError:
        return []


NO_BACKEND = Check(
    Rule(
        "C007",
        "no backend",
        "Triton takes the backend from `backend`, else from `platform`, else from the name of the "
        "file in the first version folder (model.onnx, model.plan, model.pt, model.xml, model.py), "
        "else from the folder's name, NAME.BACKEND. A config.pbtxt is read only where it stands "
        "beside the version folders.",
        wrong="model_repository/lost/1/config.pbtxt",
        right="model_repository/lost/config.pbtxt",
    ),
    _find_no_backend,
)

# ---------------------------------------------------------------- C008


def _find_unknown_backend(model: Model, _repository: Repository) -> Iterator[Mistake]:
    message = model.message
    backend = model.backend
    if backend in KNOWN_BACKENDS or not backend or model.is_ensemble:
        return
    if brings_backend(model, backend) or message.runtime:
        return
    if message.backend:
        if not meant_backend(backend):  # else it is another rule's
            close = get_close_matches(backend, KNOWN_BACKENDS, 1, 0.8)
            severity = Severity.ERROR if close else Severity.WARNING
            hint = f'write `backend: "{close[0]}"`' if close else _LIBRARY_HINT
            yield Mistake(model.at("backend"), f"unknown backend `{backend}`", hint, severity)
    elif not message.platform and backend == backend_of_name(model):
        yield Mistake(
            model.at(),
            f"unknown backend `{backend}`, which the folder's name asks for: neither `backend` nor "
            "`platform` is given",
            'write `backend: "..."`: without it Triton takes what follows the dot in the name',
        )


_LIBRARY_HINT = "the server needs its library: in its backend directory, or beside the model"

UNKNOWN_BACKEND = Check(
    Rule(
        "C008",
        "unknown backend",
        "Triton looks for libtriton_BACKEND.so in the version folder, the model's folder and its "
        "backend directory. A model folder called NAME.SOMETHING asks for the backend SOMETHING "
        "unless its config names one.",
        wrong='backend: "onnxruntme"',
        right='backend: "onnxruntime"',
    ),
    _find_unknown_backend,
)

# ---------------------------------------------------------------- C009


def _find_wrong_runtime(model: Model, _repository: Repository) -> Iterator[Mistake]:
    runtime = model.message.runtime
    beside = runtime in model.entries or any(runtime in names for names in model.versions.values())
    if not runtime or (beside and not runtime.endswith(".py")):
        return
    library = f"libtriton_{model.backend}.so"
    if "/" in runtime:
        yield Mistake(
            model.at("runtime"),
            f"the backend library `{runtime}` lies outside the backend's folder",
            "name a file, without a path",
        )
    elif not runtime.endswith((".so", ".dll", ".py")) or (
        model.backend == "python" and runtime != library
    ):
        yield Mistake(
            model.at("runtime"),
            f"there is no backend library `{runtime}` for the backend `{model.backend}`",
            f"leave `runtime` out: it is `{library}`",
        )


WRONG_RUNTIME = Check(
    Rule(
        "C009",
        "backend library that cannot be",
        "`runtime` names the file that runs the model: a library libtriton_BACKEND.so, or model.py "
        "for a backend written in Python. Triton looks for a library in the version folder, the "
        "model's folder and the backend's folder, for a model.py in the last alone.",
        wrong='runtime: "../lib/libtriton_mine.so"',
        right='runtime: "libtriton_mine.so"',
    ),
    _find_wrong_runtime,
)

# ---------------------------------------------------------------- C015


def _find_negative_batch(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if model.message.max_batch_size < 0:
        yield Mistake(
            model.at("max_batch_size"),
            f"`max_batch_size` is {model.message.max_batch_size}, and must not be negative",
            "write 0 for a model without a batch axis",
        )


NEGATIVE_BATCH = Check(
    Rule(
        "C015",
        "negative max_batch_size",
        "`max_batch_size` is how many rows a request may have; 0 says that the model has no batch "
        "axis.",
        wrong="max_batch_size: -1",
        right="max_batch_size: 0",
    ),
    _find_negative_batch,
)

# ---------------------------------------------------------------- C019

CUSTOMIZABLE = frozenset({"nv_inference_first_response_histogram_ms"})
"""The metrics whose buckets can be set."""


def _find_wrong_metrics(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, control in enumerate(model.message.model_metrics.metric_control):
        at = model.at("model_metrics", "metric_control", number)
        inside = ("model_metrics", "metric_control", number)
        family = control.metric_identifier.family
        if not control.HasField("metric_identifier"):
            hint = 'write `metric_identifier { family: "..." }`'
            yield Mistake(at, "a metric control needs a `metric_identifier`", hint)
        elif not family:
            at = model.at(*inside, "metric_identifier", "family")
            yield Mistake(at, "a `metric_identifier` needs a `family` that is not empty")
        elif family not in CUSTOMIZABLE:
            yield Mistake(
                model.at(*inside, "metric_identifier", "family"),
                f"`{family}` is no customizable metric, so its control has no effect",
                f"one that is: {', '.join(f'`{name}`' for name in sorted(CUSTOMIZABLE))}",
                Severity.WARNING,
            )
        if not control.HasField("histogram_options"):
            yield Mistake(
                at,
                "a metric control needs `histogram_options`",
                "write `histogram_options { buckets: [ 1, 10, 100 ] }`",
            )
        elif not control.histogram_options.buckets:
            at = model.at(*inside, "histogram_options")
            yield Mistake(at, "`histogram_options` needs `buckets`", "write `buckets: [ 1, 10 ]`")


WRONG_METRICS = Check(
    Rule(
        "C019",
        "incomplete model_metrics",
        "Each `metric_control` names a metric by its `family` and gives the buckets of its "
        "histogram; Triton has them since 24.11.",
        wrong='model_metrics { metric_control { metric_identifier { family: "..." } } }',
        right="model_metrics { metric_control {\n"
        '  metric_identifier { family: "nv_inference_first_response_histogram_ms" }\n'
        "  histogram_options { buckets: [ 1, 10, 100 ] } } }",
    ),
    _find_wrong_metrics,
)

CONFIG_CHECKS: tuple[Check, ...] = (
    OTHER_NAME,
    MIXED_WORDS,
    NO_BACKEND,
    UNKNOWN_BACKEND,
    WRONG_RUNTIME,
    NEGATIVE_BATCH,
    WRONG_METRICS,
)
