"""Ensembles drawn at random: the adopted pipeline computes what the original computes.

An oracle apart from the proof: each output written out as one expression of the inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import signature

from mmctl.compiler.adopt import Callee, Original, adopt_ensemble
from mmctl.lint.text import read_config_text
from mmctl.tensors import DType
from mmctl.triton.config import ConfigTensor, EnsembleStep, ModelConfig
from mmctl.triton.pbtxt import parse_config, render_config
from mmctl.triton.repository import CONFIG, GeneratedModel

MODELS = {
    "double": signature({"x": "fp32"}, {"y": "fp32"}),
    "join": signature({"a": "fp32", "b": "fp32"}, {"y": "fp32"}),
    "split": signature({"x": "fp32"}, {"low": "fp32", "high/0": "fp32"}),
    "maybe": signature({"x": "fp32", "more?": "fp32"}, {"y": "fp32"}, 4),
}
CALLEES = {name: Callee(found, name) for name, found in MODELS.items()}


@dataclass(frozen=True)
class Drawn:
    """`shown` are tensors that some output is, also of those that a step reads."""

    steps: tuple[EnsembleStep, ...]
    inputs: tuple[str, ...]
    shown: tuple[str, ...]
    max_batch: int


@st.composite
def ensembles(draw: st.DrawFn) -> Drawn:
    known = ["in_a", "in_b"][: draw(st.integers(1, 2))]
    steps: list[EnsembleStep] = []
    for number in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(MODELS)))
        takes = [s for s in MODELS[name].inputs if not s.optional or draw(st.booleans())]
        reads = {spec.name: draw(st.sampled_from(known)) for spec in takes}
        gives = [spec.name for spec in MODELS[name].outputs]
        kept = draw(st.lists(st.sampled_from(gives), min_size=1, unique=True))
        writes = {key: f"t{number}.{key}" for key in kept}
        known += writes.values()
        steps.append(EnsembleStep(name, reads, writes))
    read = {tensor for step in steps for tensor in step.inputs.values()}
    inner = [tensor for step in steps for tensor in step.outputs.values()]
    also = draw(st.lists(st.sampled_from(inner), unique=True))
    shown = [tensor for tensor in inner if tensor not in read or tensor in also]
    return Drawn(
        steps=tuple(draw(st.permutations(steps))),
        inputs=tuple(name for name in known[:2] if name.startswith("in_") and name in read),
        shown=tuple(shown),
        max_batch=draw(st.integers(1, 4)),
    )


def config_of(drawn: Drawn) -> ModelConfig:
    outputs = {tensor: f"out_{number}" for number, tensor in enumerate(drawn.shown)}

    def named(tensors: Mapping[str, str]) -> dict[str, str]:
        return {key: outputs.get(tensor, tensor) for key, tensor in tensors.items()}

    def one(name: str) -> ConfigTensor:
        return ConfigTensor(name, DType.FP32, (1,))

    return ModelConfig(
        name="flow",
        platform="ensemble",
        max_batch_size=drawn.max_batch,
        inputs=tuple(map(one, drawn.inputs)),
        outputs=tuple(one(outputs[tensor]) for tensor in drawn.shown),
        steps=tuple(
            EnsembleStep(step.model, named(step.inputs), named(step.outputs))
            for step in drawn.steps
        ),
    )


Copied = Mapping[str, Mapping[str, str]]
"""Of each step model that only copies: which of its inputs an output gives again."""


def copied_by(models: Sequence[GeneratedModel]) -> Copied:
    """As the runner of the step reads it."""
    plans = {model.name: json.loads(model.files["step.json"]) for model in models}
    assert all(step["module"] == "ready_copy" for p in plans.values() for step in p["steps"])
    return {
        name: {output["name"]: output["from"][1] for output in plan["outputs"]}
        for name, plan in plans.items()
    }


def meaning(config: ModelConfig, copied: Copied) -> dict[str, str]:
    """Each output as an expression of the inputs; a copy gives what it reads."""
    made = {t: (s, key) for s in config.steps for key, t in s.outputs.items()}

    def of(tensor: str) -> str:
        if tensor not in made:
            return tensor
        step, key = made[tensor]
        if step.model in copied:
            return of(step.inputs[copied[step.model][key]])
        inputs = ", ".join(f"{name}={of(t)}" for name, t in sorted(step.inputs.items()))
        return f"{step.model}({inputs}).{key}"

    return {output.name: of(output.name) for output in config.outputs}


@settings(max_examples=200, deadline=None)
@given(ensembles())
def test_the_adopted_pipeline_computes_what_the_ensemble_computed(drawn: Drawn) -> None:
    text = render_config(config_of(drawn))
    original = Original("flow", read_config_text(text, "flow"), parse_config(text, where="flow"))
    adopted = adopt_ensemble(original, CALLEES)
    assert [difference.text() for difference in adopted.differences] == []
    assert adopted.compiled is not None
    *copies, own = adopted.compiled.models
    assert meaning(own.configs[CONFIG], copied_by(copies)) == meaning(original.config, {})
