"""Where the copies of a model run: G001 to G005. What a target has is only known when it is said.

Source of the rules: NormalizeInstanceGroup and ValidateInstanceGroup of Triton's core, 24.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmctl.diagnostics import Rule
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check, Mistake
from mmctl.triton.schema import word_of

MOST_GPUS = 32
"""NVIDIA's driver knows no more in one machine (NV0000_CTRL_GPU_MAX_ATTACHED_GPUS)."""


def _groups(model: Model) -> Iterator[tuple[int, Any, str]]:
    if not model.is_ensemble:
        for number, group in enumerate(model.message.instance_group):
            yield number, group, word_of(group, "kind")


# ---------------------------------------------------------------- G001


def _find_no_gpu(model: Model, repository: Repository) -> Iterator[Mistake]:
    if repository.target.gpus != 0:
        return
    for number, group, kind in _groups(model):
        if kind == "KIND_GPU" and not group.gpus:
            yield Mistake(
                model.at("instance_group", number, "kind"),
                f"the instance group is KIND_GPU, and {repository.target} has no GPUs",
                "leave `kind` out: Triton takes a GPU where there is one",
            )
    if model.backend == "tensorrt" and not model.message.instance_group:
        yield Mistake(
            model.at(),
            f"a TensorRT engine needs a GPU, and {repository.target} has no GPUs",
            "serve the ONNX model there",
        )


NO_GPU = Check(
    Rule(
        "G001",
        "GPU that the target does not have",
        "An instance group of KIND_GPU does not load on a server without GPUs, and a TensorRT "
        "engine runs on nothing else. Without `kind`, Triton takes GPUs where there are any and "
        "the CPU elsewhere.",
        wrong="instance_group { count: 1 kind: KIND_GPU }  # target without GPUs",
        right="instance_group { count: 1 }",
    ),
    _find_no_gpu,
)

# ---------------------------------------------------------------- G002


def _find_wrong_gpus(model: Model, repository: Repository) -> Iterator[Mistake]:
    there = repository.target.gpus
    limit = MOST_GPUS if there is None else there
    for number, group, kind in _groups(model):
        if kind in ("KIND_CPU", "KIND_MODEL"):
            continue  # that it has any is another rule's mistake
        for place, gpu in enumerate(group.gpus):
            if 0 <= gpu < limit:
                continue
            if gpu < 0:
                why = "ids begin at 0"
            elif there is None:
                why = f"no machine has more than {MOST_GPUS}"
            else:
                why = f"{repository.target} has {_gpus(there)}"
            yield Mistake(
                model.at("instance_group", number, "gpus", place),
                f"the instance group specifies the invalid gpu id {gpu}: {why}",
                "ids count the GPUs that Triton sees, from 0; without `gpus` it takes all",
            )


def _gpus(count: int) -> str:
    return {0: "no GPUs", 1: "one, with the id 0"}.get(count, f"{count}, with ids to {count - 1}")


WRONG_GPUS = Check(
    Rule(
        "G002",
        "GPU id that does not exist",
        "`gpus` counts the devices that Triton sees, from 0: with CUDA_VISIBLE_DEVICES=6,7 they "
        "are 0 and 1, and in a container with one GPU only 0.",
        wrong="instance_group { kind: KIND_GPU gpus: [ 6 ] }  # target with one GPU",
        right="instance_group { kind: KIND_GPU gpus: [ 0 ] }",
    ),
    _find_wrong_gpus,
)

# ---------------------------------------------------------------- G003


def _find_needless_gpus(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, group, kind in _groups(model):
        if kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
            yield Mistake(
                model.at("instance_group", number, "gpus"),
                f"the instance group has kind {kind} but specifies GPUs",
                "leave `gpus` out, or write `kind: KIND_GPU`",
            )


NEEDLESS_GPUS = Check(
    Rule(
        "G003",
        "GPUs of a group that has none",
        "`gpus` goes with KIND_GPU. A group of KIND_CPU or KIND_MODEL that lists GPUs does not "
        "load.",
        wrong="instance_group { kind: KIND_CPU gpus: [ 0 ] }",
        right="instance_group { kind: KIND_CPU }",
    ),
    _find_needless_gpus,
)

# ---------------------------------------------------------------- G004


def _find_engine_without_gpu(model: Model, _repository: Repository) -> Iterator[Mistake]:
    if model.backend != "tensorrt":
        return
    for number, _group, kind in _groups(model):
        if kind in ("KIND_CPU", "KIND_MODEL"):
            yield Mistake(
                model.at("instance_group", number, "kind"),
                f"the instance group has kind {kind}, and a TensorRT engine runs on GPUs only",
                "write `kind: KIND_GPU`, or leave `kind` out",
            )


ENGINE_WITHOUT_GPU = Check(
    Rule(
        "G004",
        "TensorRT engine off the GPU",
        "The TensorRT backend takes instances of KIND_GPU only.",
        wrong='backend: "tensorrt"\ninstance_group { kind: KIND_CPU }',
        right='backend: "tensorrt"\ninstance_group { kind: KIND_GPU }',
    ),
    _find_engine_without_gpu,
)

# ---------------------------------------------------------------- G005


def _find_wrong_profiles(model: Model, _repository: Repository) -> Iterator[Mistake]:
    for number, group, _kind in _groups(model):
        if group.profile and model.backend != "tensorrt":
            yield Mistake(
                model.at("instance_group", number, "profile"),
                "the instance group has a `profile`, which only TensorRT models have",
                "leave it out",
            )
            continue
        for place, profile in enumerate(group.profile):
            if not (profile.isascii() and profile.isdigit()):
                yield Mistake(
                    model.at("instance_group", number, "profile", place),
                    f"the profile `{profile}` is invalid: it is the number of a profile of the "
                    "engine, as text",
                    'write `profile: [ "0" ]`',
                )


WRONG_PROFILES = Check(
    Rule(
        "G005",
        "optimisation profile that cannot be",
        "`profile` lists optimisation profiles of a TensorRT engine by their numbers, as texts; no "
        "other model has any.",
        wrong='backend: "onnxruntime"\ninstance_group { profile: [ "0" ] }',
        right='backend: "tensorrt"\ninstance_group { profile: [ "0" ] }',
    ),
    _find_wrong_profiles,
)

INSTANCE_CHECKS: tuple[Check, ...] = (
    NO_GPU,
    WRONG_GPUS,
    NEEDLESS_GPUS,
    ENGINE_WITHOUT_GPU,
    WRONG_PROFILES,
)
