"""The law behind copies and the order of steps: any outputs of a pipeline may be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import graph_of, signature, source

from mmctl.compiler import compile_pipeline
from mmctl.compiler.subsets import safe_first
from mmctl.triton.config import EnsembleStep

MODELS = {"join": signature({"a": "fp32", "b": "fp32"}, {"p": "fp32", "q": "fp32"})}


def served(steps: Sequence[EnsembleStep], outputs: set[str], wanted: set[str]) -> set[str]:
    """Which of `wanted` Triton answers: its way of dropping steps, its two mistakes included."""
    maker = {tensor: i for i, step in enumerate(steps) for tensor in step.outputs.values()}
    readers: dict[str, set[int]] = {}
    for index, step in enumerate(steps):
        for tensor in step.inputs.values():
            readers.setdefault(tensor, set()).add(index)
    left = {index: len(step.outputs) for index, step in enumerate(steps)}
    ignored = outputs - wanted
    while ignored:
        found = set()
        for tensor in sorted(ignored):
            index = maker.get(tensor, 0)  # what no step makes counts as made by the first
            left[index] -= 1
            if left[index] == 0:
                for read in steps[index].inputs.values():
                    readers[read].discard(index)
                    if not readers[read]:
                        found.add(read)
        ignored = found
    return wanted & _made(steps, readers, set(maker))


def _made(steps: Sequence[EnsembleStep], readers: dict[str, set[int]], inner: set[str]) -> set[str]:
    """Tensors that come to be when a step runs only for a reader that was not dropped."""
    known: set[str] = {t for s in steps for t in s.inputs.values() if t not in inner}
    while True:
        new = {
            tensor
            for index, step in enumerate(steps)
            if all(t in known and index in readers[t] for t in step.inputs.values())
            for tensor in step.outputs.values()
        }
        if new <= known:
            return known
        known |= new


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    """Random graphs of models and steps, each with two inputs and two outputs."""
    inputs = [f"i{n}" for n in range(draw(st.integers(1, 3)))]
    known, nodes = list(inputs), []
    for number in range(draw(st.integers(1, 5))):
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        runs = draw(st.sampled_from(["model: join", "step: f, outputs: {p: fp32, q: fp32}"]))
        nodes.append(f"  n{number}: {{{runs}, inputs: {{a: {a}, b: {b}}}}}")
        known += [f"n{number}.p", f"n{number}.q"]
    made = [tensor for tensor in known if "." in tensor]
    shown = draw(st.lists(st.sampled_from(made), min_size=1, max_size=5))
    outputs = ", ".join(f"o{n}: {tensor}" for n, tensor in enumerate(shown))
    types = ", ".join(f"{name}: fp32" for name in inputs)
    return (
        f"pipeline: demo\ninputs: {{{types}}}\nnodes:\n"
        + "\n".join(nodes)
        + f"\noutputs: {{{outputs}}}\n"
    )


@settings(max_examples=150, deadline=None)
@given(pipelines())
def test_every_subset_of_the_outputs_is_answered(text: str) -> None:
    text = only_what_is_needed(text)
    pipeline = source(text, steps="def f(a, b):\n    return {'p': a, 'q': b}\n")
    graph = graph_of(pipeline, MODELS)
    steps = compile_pipeline(graph, pipeline).models[-1].configs["config.pbtxt"].steps
    outputs = set(graph.outputs)
    for size in range(1, len(outputs) + 1):
        for wanted in combinations(sorted(outputs), size):
            assert served(steps, outputs, set(wanted)) == set(wanted)


def only_what_is_needed(text: str) -> str:
    """The pipeline without nodes that reach no output and inputs that nothing reads."""
    head, types, _, *nodes, outputs = text.strip().splitlines()
    kept: list[str] = []
    for node in reversed(nodes):
        name = node.split(":")[0].strip()
        if any(f" {name}." in line for line in (outputs, *kept)):
            kept.insert(0, node)
    names = [part.split(":")[0] for part in types.split("{")[1].rstrip("}").split(", ")]
    used = [name for name in names if any(f" {name}" in line.replace("}", " ") for line in kept)]
    types = ", ".join(f"{name}: fp32" for name in used)
    return "\n".join([head, "form: ensemble", f"inputs: {{{types}}}", "nodes:", *kept, outputs])


def step(reads: str, gives: str) -> EnsembleStep:
    return EnsembleStep(
        "m", {name: name for name in reads.split()}, {name: name for name in gives.split()}
    )


def test_triton_drops_the_first_step_when_an_input_has_no_reader_left() -> None:
    steps = [step("i", "p"), step("j", "q")]
    assert served(steps, {"p", "q"}, {"q"}) == {"q"}
    assert served(steps, {"p", "q"}, {"p"}) == set()
    assert safe_first(steps, {"i", "j"}, ["p", "q"]) is None


def test_triton_drops_a_step_whose_output_is_read_inside() -> None:
    steps = [step("i", "mid"), step("mid", "y")]
    assert served(steps, {"mid", "y"}, {"y"}) == set()


def test_a_step_that_reads_every_input_is_safe() -> None:
    steps = [step("i", "p"), step("i j", "q")]
    assert safe_first(steps, {"i", "j"}, ["p", "q"]) == 1


def test_a_step_is_safe_when_all_that_rests_on_it_rests_on_the_other_inputs_too() -> None:
    steps = [step("i", "a"), step("j", "b"), step("a b", "y")]
    assert safe_first(steps, {"i", "j"}, ["y"]) == 0


def test_outputs_that_do_not_rest_on_a_step_do_not_keep_it_from_standing_first() -> None:
    steps = [step("i", "a"), step("j", "b"), step("a b", "y"), step("i", "z"), step("j", "w")]
    assert safe_first(steps, {"i", "j"}, ["y", "z", "w"]) == 0
    for size in (1, 2, 3):
        for wanted in combinations("yzw", size):
            assert served(steps, set("yzw"), set(wanted)) == set(wanted)
