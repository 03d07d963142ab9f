"""The way back: an ensemble that somebody wrote -> a pipeline.yaml that compiles to it.

original   the ensemble, what it calls, and what a difference is
limits     names and fields that pipeline.yaml cannot say
edges      steps, tensors and batches that make no graph
text       the file, as a person would write it
values     a config field by field
proof      is the compiled config what the original was?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mmctl.compiler import Compiled, compile_pipeline
from mmctl.compiler.adopt.edges import find_wrong_edges
from mmctl.compiler.adopt.limits import find_limits
from mmctl.compiler.adopt.original import LEAVE, STEP, Callee, Difference, Original, difference
from mmctl.compiler.adopt.proof import find_differences
from mmctl.compiler.adopt.text import NodeText, PipelineText, render_pipeline
from mmctl.compiler.adopt.values import Location
from mmctl.diagnostics import Finding, Severity
from mmctl.documents import Document, parse_document
from mmctl.errors import InputError, InvalidFiles
from mmctl.pipeline import PipelineSource, check_pipeline
from mmctl.tensors import Signature
from mmctl.triton.config import EnsembleStep
from mmctl.triton.pbtxt import signature_of
from mmctl.triton.releases import Release

__all__ = [
    "LEAVE",
    "Adopted",
    "Callee",
    "Difference",
    "Original",
    "adopt_ensemble",
    "name_nodes",
]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The pipeline that an ensemble becomes, or why not: then there are `differences`.

    `nodes` are the names of the steps, `models` what they call. `copies` are step models that the
    original has not: they repair what Triton answers to a request for some of the outputs.
    """

    name: str
    text: str = ""
    nodes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    compiled: Compiled | None = None
    differences: tuple[Difference, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def copies(self) -> tuple[str, ...]:
        made = self.compiled.models[:-1] if self.compiled else ()
        return tuple(model.name for model in made)


def adopt_ensemble(
    original: Original, callees: Mapping[str, Callee], release: Release | None = None
) -> Adopted:
    """Write, compile and compare. `callees` has every model that the steps name."""
    limits = (*find_limits(original), *find_wrong_edges(original, callees))
    if limits:
        return Adopted(original.name, differences=limits)
    models = tuple(step.model for step in original.steps)
    nodes = name_nodes(original.name, models)
    signatures = {name: callee.signature for name, callee in callees.items()}
    text = render_pipeline(_pipeline_text(original, nodes, signatures))
    written = Adopted(original.name, text, nodes, models)
    document = None
    try:
        document = parse_document(text, f"ensembles/{original.name}/pipeline.yaml")
        compiled, warnings = _compile(original.name, document, signatures, release)
    except InvalidFiles as error:
        wrong = tuple(_told(original, _step_of(f, nodes, document), f) for f in error.findings)
        return replace(written, differences=wrong)
    except InputError as error:
        wrong = (difference(original, STEP[:1], error.message, error.hint),)
        return replace(written, differences=wrong)
    wrong = tuple(_other_form(original, compiled))
    wrong = wrong or tuple(find_differences(original, nodes, compiled))
    return replace(written, compiled=compiled, differences=wrong, warnings=warnings)


def name_nodes(pipeline: str, models: Sequence[str]) -> tuple[str, ...]:
    """A name for each step, after its model: encoder, encoder_2; of flow_encoder the same."""
    names: list[str] = []
    for model in models:
        word = re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")
        short = word.removeprefix(f"{pipeline}_")
        word = next((w for w in (short, word) if w[:1].isalpha()), f"model_{word}".rstrip("_"))
        name, count = word, 1
        while name in names:
            count += 1
            name = f"{word}_{count}"
        names.append(name)
    return tuple(names)


def _pipeline_text(
    original: Original, nodes: Sequence[str], signatures: Mapping[str, Signature]
) -> PipelineText:
    own = signature_of(original.config)
    made = {
        tensor: f"{node}.{key}"
        for node, step in zip(nodes, original.steps, strict=True)
        for key, tensor in step.outputs.items()
    }
    sizes = [signatures[step.model].max_batch for step in original.steps]
    least = min((size for size in sizes if size), default=0)
    return PipelineText(
        name=original.name,
        inputs={spec.name: spec.type for spec in own.inputs},
        nodes=tuple(
            NodeText(node, step.model, _references(step, signatures[step.model], made))
            for node, step in zip(nodes, original.steps, strict=True)
        ),
        outputs={spec.name: made.get(spec.name, spec.name) for spec in own.outputs},
        max_batch=own.max_batch if own.max_batch != least else None,
    )


def _references(
    step: EnsembleStep, signature: Signature, made: Mapping[str, str]
) -> dict[str, str]:
    """In the order in which the model declares its inputs."""
    order = [spec.name for spec in signature.inputs]
    known = [name for name in order if name in step.inputs]
    others = sorted(set(step.inputs) - set(known))
    return {key: made.get(step.inputs[key], step.inputs[key]) for key in (*known, *others)}


def _compile(
    name: str, document: Document, signatures: Mapping[str, Signature], release: Release | None
) -> tuple[Compiled, tuple[Finding, ...]]:
    """As `mmctl compile` will do. Raises InvalidFiles with what is wrong in the file."""
    source = PipelineSource(name, document)
    checked = check_pipeline(source, signatures)
    if checked.graph is None:
        raise InvalidFiles([f for f in checked.findings if f.severity is Severity.ERROR])
    return compile_pipeline(checked.graph, source, release), checked.findings


def _step_of(finding: Finding, nodes: Sequence[str], document: Document | None) -> Location:
    """The step whose node the finding stands in; the file that it speaks of is never written."""
    lines = [document.at_key("nodes", node).line if document else 0 for node in nodes]
    before = [index for index, line in enumerate(lines) if 0 < line <= finding.line]
    is_inside = before and document and finding.line < document.at_key("outputs").line
    return (*STEP, before[-1], "model_name") if is_inside else STEP[:1]


def _told(original: Original, place: Location, finding: Finding) -> Difference:
    message = f"as a pipeline: {finding.code} {finding.message}"
    return difference(original, place, message, finding.hint)


def _other_form(original: Original, compiled: Compiled) -> Iterator[Difference]:
    if compiled.form != "ensemble":
        message = f"as a pipeline it takes the form `{compiled.form}`, because {compiled.reason}"
        yield difference(original, STEP[:1], message)
