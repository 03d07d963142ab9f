"""Graph -> an ensemble, scheduled inside Triton without Python, and the step models it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mmctl.compiler.steps import COPY, Shown, StepModel, step_model
from mmctl.compiler.subsets import safe_first
from mmctl.errors import InputError
from mmctl.files import digest_of
from mmctl.pipeline.graph import FusedSteps, Graph, ModelCall, Node, StepCall, Wire
from mmctl.tensors import DType, Signature, TensorSpec
from mmctl.triton.config import EnsembleStep, ModelConfig
from mmctl.triton.generate import config_tensor
from mmctl.triton.repository import CONFIG, GeneratedModel


@dataclass(frozen=True, slots=True)
class Part:
    """A step of the ensemble, and the Python model to generate for it if there is one."""

    step: EnsembleStep
    model: StepModel | None = None


def to_ensemble(graph: Graph, origin: str) -> tuple[GeneratedModel, ...]:
    """Step models in the order they run, the pipeline's own model last."""
    parts = _with_safe_first(_parts(graph), graph)
    models = [
        step_model(part.model, pipeline_max_batch=graph.max_batch, origin=origin)
        for part in parts
        if part.model is not None
    ]
    return (*models, _pipeline_model(graph, [part.step for part in parts], origin))


def _pipeline_model(graph: Graph, steps: Sequence[EnsembleStep], origin: str) -> GeneratedModel:
    signature = Signature(graph.inputs, graph.output_specs(), graph.max_batch)
    config = ModelConfig(
        name=graph.name,
        platform="ensemble",
        max_batch_size=graph.max_batch,
        inputs=tuple(config_tensor(spec) for spec in signature.inputs),
        outputs=tuple(config_tensor(spec) for spec in signature.outputs),
        steps=tuple(steps),
    )
    key = {
        "form": "ensemble",
        "batched": graph.max_batch > 0,
        "inputs": [str(spec) for spec in signature.inputs],
        "outputs": [str(spec) for spec in signature.outputs],
        "steps": [[step.model, dict(step.inputs), dict(step.outputs)] for step in steps],
    }
    return GeneratedModel(
        name=graph.name,
        configs={CONFIG: config},
        signature=signature,
        origin=origin,
        own_key=digest_of(key),
        calls=tuple(dict.fromkeys(step.model for step in steps)),
    )


def _parts(graph: Graph) -> list[Part]:
    """Each node, followed by the copy of its outputs where one is needed.

    Nothing inside may read an output of the pipeline: see `subsets`. So a tensor that is read
    inside too, or shown twice, is given once more: by our own step itself, or by a step that
    copies what a model gives.
    """
    read = {wire for node in graph.nodes for wire in node.inputs.values()}
    parts = []
    for node in graph.nodes:
        shown = {name: wire for name, wire in graph.outputs.items() if wire.node == node.name}
        inside = {wire for wire in read if wire.node == node.name}
        match node.runs:
            case StepCall() | FusedSteps() as call:
                parts.append(_step_part(graph, node, call, inside, shown))
            case ModelCall() as call:
                parts += _model_parts(graph, node, call, inside, shown)
    return parts


def _step_part(
    graph: Graph,
    node: Node,
    call: StepCall | FusedSteps,
    inside: set[Wire],
    shown: Mapping[str, Wire],
) -> Part:
    """A step of our own gives a tensor as often as it is needed."""
    outputs = {wire.tensor: str(wire) for wire in sorted(inside)}
    copies = []
    for name, wire in shown.items():
        if wire.tensor not in outputs:
            outputs[wire.tensor] = name
        else:
            copies.append(Shown(f"{wire.tensor}__{name}", graph.spec(wire)))
            outputs[copies[-1].name] = name
    name = f"{graph.name}__{node.name}"
    model = StepModel(name, node.name, call, node.takes, node.gives, tuple(copies))
    return Part(EnsembleStep(name, _read(node), outputs), model)


def _model_parts(
    graph: Graph, node: Node, call: ModelCall, inside: set[Wire], shown: Mapping[str, Wire]
) -> Iterator[Part]:
    wires = list(shown.values())
    copied = {n: w for n, w in shown.items() if w in inside or wires.count(w) > 1}
    outputs = {wire.tensor: str(wire) for wire in sorted(inside | set(copied.values()))}
    outputs |= {wire.tensor: name for name, wire in shown.items() if name not in copied}
    yield Part(EnsembleStep(call.model, _read(node), outputs))
    if copied:
        yield _copy(f"{graph.name}__{node.name}__copy", f"copy of {node.name}", copied, graph)


def _read(node: Node) -> dict[str, str]:
    return {name: str(wire) for name, wire in node.inputs.items()}


def _copy(name: str, step: str, copied: Mapping[str, Wire], graph: Graph) -> Part:
    """A step that gives tensors once more, each under the name that is its key."""
    specs = {wire: _as_bytes(graph.spec(wire)) for wire in copied.values()}
    copies = tuple(Shown(shown, specs[wire]) for shown, wire in copied.items())
    reads = {spec.name: str(wire) for wire, spec in specs.items()}
    model = StepModel(name, step, COPY, tuple(specs.values()), (), copies)
    return Part(EnsembleStep(name, reads, {shown: shown for shown in copied}), model)


def _as_bytes(spec: TensorSpec) -> TensorSpec:
    """Text is copied as bytes: what it spells does not matter."""
    if spec.type.dtype is DType.BF16:
        raise InputError(
            f"`{spec.name}` is bf16, and shown as an output although a node reads it too",
            hint="let the model give it as fp32: the copy that Triton needs is made in numpy",
        )
    dtype = DType.BYTES if spec.type.dtype.is_text else spec.type.dtype
    return replace(spec, type=replace(spec.type, dtype=dtype))


def _with_safe_first(parts: Sequence[Part], graph: Graph) -> list[Part]:
    """Parts so that a request for some of the outputs is answered, whichever they are."""
    inputs = {spec.name for spec in graph.inputs}
    first = safe_first([part.step for part in parts], inputs, graph.outputs)
    if first is None:
        return _behind_a_copy(parts, graph)
    return [parts[first], *parts[:first], *parts[first + 1 :]]


def _behind_a_copy(parts: Sequence[Part], graph: Graph) -> list[Part]:
    """One step reads all inputs of the pipeline and hands them on: that one is safe."""
    moved = {spec.name: f"{spec.name}__copy" for spec in graph.inputs}
    copied = {shown: Wire("", name) for name, shown in moved.items()}
    copy = _copy(f"{graph.name}__copy__inputs", "copy of the inputs", copied, graph)
    return [copy, *(replace(part, step=_moved(part.step, moved)) for part in parts)]


def _moved(step: EnsembleStep, moved: Mapping[str, str]) -> EnsembleStep:
    inputs = {name: moved.get(tensor, tensor) for name, tensor in step.inputs.items()}
    return replace(step, inputs=inputs)
