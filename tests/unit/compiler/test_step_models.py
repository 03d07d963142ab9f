"""A step -> a Python model: the shipped runner and data, an own instance group, a key for both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pipelines import graph_of, source

from mmctl.compiler import compile_pipeline
from mmctl.compiler.steps import shipped
from mmctl.pipeline import Asset
from mmctl.triton.config import InstanceGroup
from mmctl.triton.repository import GeneratedModel, Resource

RUNNER = [
    "item_lists.py", "model.py", "model_counters.py", "step.json", "step_reads.py",
    "step_tensors.py",
]  # fmt: skip
STEPS = "import words\ndef f(x):\n    return {'y': x}\n"
FILES: dict[str, Any] = {
    "steps": STEPS,
    "common": {"words": "WORDS = ['a']\n"},
    "assets": {
        "list.txt": Asset("list.txt", b"a\nb\n"),
        "far.json": Asset("far.json", package="package:some_model/far.json"),
    },
}


def made(settings: str = "", step: str = "f", outputs: str = "{y: fp32}", **files: Any) -> Any:
    """The step model of a pipeline with one step."""
    text = f"""
    pipeline: demo
    form: ensemble
    inputs: {{x: fp32}}
    nodes:
      a: {{step: {step}, inputs: {{x: x}}, outputs: {outputs}{settings}}}
    outputs: {{out: a.y}}
    """
    pipeline = source(text, **{**FILES, **files})
    return compile_pipeline(graph_of(pipeline), pipeline).models[0]


def ready(step: str, fed: str = "scores", kind: str = '"fp32[2]"', shown: str = "label") -> Any:
    """The step model of a pipeline with one ready-made step."""
    text = f"""
    pipeline: demo
    form: ensemble
    inputs: {{x: {kind}}}
    nodes:
      a: {{step: {{{step}}}, inputs: {{{fed}: x}}}}
    outputs: {{out: a.{shown}}}
    """
    pipeline = source(text, **FILES)
    return compile_pipeline(graph_of(pipeline), pipeline).models[0]


def plan(model: GeneratedModel) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(model.files["step.json"])
    return loaded


def test_a_step_ships_the_runner_its_sources_and_its_assets() -> None:
    model = made()
    assert model.name == "demo__a"
    assert sorted(model.files) == [
        "assets/list.txt", "common/words.py", *RUNNER, "steps.py",
    ]  # fmt: skip
    assert model.files["model.py"] == shipped("step_model")
    assert model.files["steps.py"] == STEPS.encode()
    assert model.resources == {"assets/far.json": Resource("package:some_model/far.json")}
    assert model.origin == "ensembles/demo/pipeline.yaml"


def test_step_json_says_how_to_call_the_function() -> None:
    assert plan(made()) == {
        "schema": 2,
        "inputs": [{"name": "x", "dtype": "fp32", "dims": []}],
        "steps": [
            {
                "step": "a",
                "module": "steps",
                "function": "f",
                "options": None,
                "rows": False,
                "inputs": [{"name": "x", "dtype": "fp32", "dims": [], "from": ["", "x"]}],
                "gives": [{"name": "y", "dtype": "fp32", "dims": []}],
            }
        ],
        "outputs": [{"name": "y", "from": ["a", "y"]}],
        "batched": True,
        "join": True,
    }


def test_a_function_of_one_row_is_called_row_by_row() -> None:
    assert plan(made(", batch: false"))["steps"][0]["rows"]


def test_a_ready_made_step_ships_its_module_and_only_the_files_it_names() -> None:
    model = ready("use: labels, labels: [a, b]")
    assert sorted(model.files) == sorted(["ready_labels.py", *RUNNER])
    assert model.resources == {}
    assert plan(model)["steps"][0]["options"] == {
        "labels": ["a", "b"],
        "file": None,
        "softmax": False,
    }
    model = ready("use: labels, file: list.txt")
    assert sorted(model.files) == sorted(["assets/list.txt", "ready_labels.py", *RUNNER])
    assert plan(model)["steps"][0]["options"]["file"] == "assets/list.txt"


def test_a_step_has_an_instance_group_of_its_own() -> None:
    config = made(", instances: {cpu: 3}").configs["config.pbtxt"]
    assert config.instances == (InstanceGroup(3, "KIND_CPU"),)
    assert config.backend == "python"


def test_a_step_joins_requests_up_to_its_own_limit() -> None:
    config = made(", batching: {max_delay_ms: 2}").configs["config.pbtxt"]
    assert config.max_batch_size == 32
    assert config.batching is not None
    assert config.batching.max_delay_us == 2000
    assert made(", batching: {max_batch: 4}").configs["config.pbtxt"].max_batch_size == 4


def test_a_step_takes_the_whole_batch_of_its_pipeline() -> None:
    pipeline = source(
        "pipeline: demo\nform: ensemble\nmax_batch: 64\ninputs: {x: fp32}\n"
        "nodes: {a: {step: f, inputs: {x: x}, outputs: {y: fp32}}}\noutputs: {out: a.y}\n",
        **FILES,
    )
    models = compile_pipeline(graph_of(pipeline), pipeline).models
    assert [m.configs["config.pbtxt"].max_batch_size for m in models] == [64, 64]


@pytest.mark.parametrize(
    "same",
    [
        pytest.param({"settings": ", instances: {cpu: 3}"}, id="instances"),
        pytest.param({"settings": ", batching: {max_batch: 4}"}, id="batching"),
        pytest.param({"modules": {"unused": "X = 1"}}, id="a module that it does not import"),
        pytest.param({"settings": "  # as Ann asked\n      "}, id="a comment in pipeline.yaml"),
    ],
)
def test_settings_are_no_other_version(same: dict[str, Any]) -> None:
    assert made(**same).own_key == made().own_key


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"steps": STEPS + "# more\n"}, id="steps.py"),
        pytest.param({"common": {"words": "WORDS = []\n"}}, id="an imported module"),
        pytest.param({"requirements": "regex\n"}, id="requirements.txt"),
        pytest.param({"settings": ", batch: false"}, id="how it is called"),
        pytest.param({"outputs": '{y: "fp32[-1]"}'}, id="its types"),
        pytest.param({"assets": {"list.txt": Asset("list.txt", b"c")}}, id="an asset"),
        pytest.param(
            {"assets": {**FILES["assets"], "far.json": Asset("far.json", package="package:b/c")}},
            id="another file of a package",
        ),
        pytest.param(
            {
                "assets": {
                    **FILES["assets"],
                    "far.json": Asset(
                        "far.json", package="package:some_model/far.json", sha256="a"
                    ),
                }
            },
            id="the hash of a package's file",
        ),
    ],
)
def test_all_that_a_step_is_made_of_moves_its_version(other: dict[str, Any]) -> None:
    assert made(**other).own_key != made().own_key


def test_options_of_a_ready_made_step_move_its_version() -> None:
    keys = {ready(f"use: labels, labels: [a, {last}]").own_key for last in "bc"}
    assert len(keys) == 2
