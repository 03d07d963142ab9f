"""Where the copies of a model run: G001 to G005."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, found, found_in

from mmctl.lint.configs.instances import INSTANCE_CHECKS
from mmctl.lint.repository import Target

AT = "error m/config.pbtxt:2"
BOX = Target(gpus=2, name="box")


def group(text: str, backend: str = "python") -> str:
    return f'backend: "{backend}"\ninstance_group {{ {text} }}'


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        pytest.param(
            group("kind: KIND_GPU"),
            0,
            "G001 the instance group is KIND_GPU, and the target has no GPUs",
            id="a GPU where there is none",
        ),
        pytest.param(
            group("kind: KIND_GPU gpus: [ 0 ]"),
            0,
            "G002 the instance group specifies the invalid gpu id 0: the target has no GPUs",
            id="the first GPU where there is none",
        ),
        pytest.param(
            group("kind: KIND_GPU gpus: [ 0, 6 ]"),
            1,
            "G002 the instance group specifies the invalid gpu id 6: the target has one, with the "
            "id 0",
            id="a GPU too far",
        ),
        pytest.param(
            group("gpus: [ 2 ]"),
            2,
            "G002 the instance group specifies the invalid gpu id 2: the target has 2, with ids to "
            "1",
            id="a GPU too far, of a group without a kind",
        ),
        pytest.param(
            group("kind: KIND_GPU gpus: [ -1 ]"),
            None,
            "G002 the instance group specifies the invalid gpu id -1: ids begin at 0",
            id="a negative id is wrong everywhere",
        ),
        pytest.param(
            group("kind: KIND_GPU gpus: [ 42 ]"),
            None,
            "G002 the instance group specifies the invalid gpu id 42: no machine has more than 32",
            id="an id that no machine has",
        ),
        pytest.param(
            group("kind: KIND_CPU gpus: [ 0 ]"),
            None,
            "G003 the instance group has kind KIND_CPU but specifies GPUs",
            id="GPUs of a CPU",
        ),
        pytest.param(
            group("kind: KIND_MODEL gpus: [ 9 ]"),
            0,
            "G003 the instance group has kind KIND_MODEL but specifies GPUs",
            id="GPUs where the model chooses",
        ),
        pytest.param(
            group("kind: KIND_CPU", "tensorrt"),
            None,
            "G004 the instance group has kind KIND_CPU, and a TensorRT engine runs on GPUs only",
            id="an engine on the CPU",
        ),
        pytest.param(
            group('profile: "0"'),
            None,
            "G005 the instance group has a `profile`, which only TensorRT models have",
            id="a profile of no engine",
        ),
        pytest.param(
            group('profile: "fast"', "tensorrt"),
            None,
            "G005 the profile `fast` is invalid: it is the number of a profile of the engine, as "
            "text",
            id="a profile that is no number",
        ),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, text: str, gpus: int | None, expected: str) -> None:
    found = found_in(tmp_path, text, INSTANCE_CHECKS, target=Target(gpus=gpus))
    assert found == [f"{AT} {expected}"]


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        pytest.param(group("kind: KIND_GPU"), None, id="a GPU, and nobody says what there is"),
        pytest.param(group("kind: KIND_GPU gpus: [ 6 ]"), None, id="the seventh GPU of somebody"),
        pytest.param(group("kind: KIND_GPU gpus: [ 0, 1 ]"), 2, id="two of two"),
        pytest.param(group("kind: KIND_CPU count: 2"), 0, id="the CPU"),
        pytest.param(group("count: 2"), 0, id="whatever there is"),
        pytest.param(group('profile: "1"', "tensorrt"), 1, id="a profile of an engine"),
    ],
)
def test_what_is_right_stays_silent(tmp_path: Path, text: str, gpus: int | None) -> None:
    assert found_in(tmp_path, text, INSTANCE_CHECKS, target=Target(gpus=gpus)) == []


def test_an_engine_without_a_group_needs_a_gpu_too(tmp_path: Path) -> None:
    found = found_in(tmp_path, 'backend: "tensorrt"', INSTANCE_CHECKS, target=Target(gpus=0))
    assert found == [
        "error m/config.pbtxt:1 G001 a TensorRT engine needs a GPU, and the target has no GPUs"
    ]


def test_the_target_is_named(tmp_path: Path) -> None:
    found = found_in(tmp_path, group("gpus: [ 7 ]"), INSTANCE_CHECKS, target=BOX)
    assert found == [
        f"{AT} G002 the instance group specifies the invalid gpu id 7: box has 2, with ids to 1"
    ]


def test_groups_of_an_ensemble_are_another_rules_business(tmp_path: Path) -> None:
    text = ensemble("x:FP32[4]", "y:FP32[4]", more="instance_group { kind: KIND_GPU }\n")
    files = {"flow/config.pbtxt": text}
    assert found(tmp_path, files, INSTANCE_CHECKS, target=Target(gpus=0)) == ()
