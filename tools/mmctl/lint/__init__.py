"""Every rule that mmctl knows, one table: what `check --explain CODE` reads.

repository    the models of a folder, as they lie on disk
text          config.pbtxt as text: what protobuf would refuse or drop (words, places, placeholders)
completion    configs as Triton completes them, signatures: what callers of a model may rely on
rules         what a rule is: a row and a function
tables        the rules about repositories, a table for each family: what `checker` runs
configs       rules about one config.pbtxt and what lies beside it
ensembles     rules about ensembles and what they call
onnx          ONNX files without their weights, and rules about them
code          rules about the code of Python models that call others
engines       rules about TensorRT engines, engine_files: those about engines in a repository
run           what only a running server can show (found by `trials.runcheck`)
fix           repairs with one right answer

Rules about a pipeline are found by `pipeline.check_pipeline`, those about any YAML file when it is
read.
"""

from __future__ import annotations

from mmctl.diagnostics import Rule, Severity
from mmctl.lint.configs.layout import LAYOUT_RULES
from mmctl.lint.engines import ENGINE_RULES
from mmctl.lint.onnx.batches import BATCH_MATES
from mmctl.lint.run import RUN_RULES
from mmctl.lint.tables import CHECKS
from mmctl.lint.text import TEXT_RULES
from mmctl.pipeline import WIRING_RULES

__all__ = ["DOCUMENT_RULES", "RULES"]

DOCUMENT_RULES: tuple[Rule, ...] = (
    Rule(
        "Y001",
        "not YAML",
        "The file cannot be parsed. Inside { } a type with brackets is quoted: "
        '{pixels: "fp32[3,224,224]"}.',
        wrong="inputs: {pixels: fp32[3,224,224]}",
        right='inputs: {pixels: "fp32[3,224,224]"}',
    ),
    Rule(
        "Y002",
        "key that cannot stand here",
        "Keys are words, each stands once in its mapping, and nesting has a limit.",
        wrong="nodes:\n  a: {model: nsfw}\n  a: {model: minilm}",
        right="nodes:\n  a: {model: nsfw}\n  b: {model: minilm}",
    ),
    Rule(
        "Y003",
        "unknown key",
        "Keys that mmctl does not know are errors, so that a misspelt one is never ignored.",
        wrong="batching: {max_bach: 32}",
        right="batching: {max_batch: 32}",
    ),
    Rule(
        "Y004",
        "missing key",
        "The mapping needs this key.",
        wrong="pipeline: flow\ninputs: {text: string}",
        right="pipeline: flow\ninputs: {text: string}\nnodes: {...}\noutputs: {...}",
    ),
    Rule(
        "Y005",
        "wrong value",
        "The value is not what its key takes. Booleans are true and false; numbers have no unit.",
        wrong="timeout_ms: 200ms",
        right="timeout_ms: 200",
    ),
    Rule(
        "Y006",
        "name of nothing here",
        "Settings under `cache.models` are for the model or pipeline of that name. A misspelt one "
        "changes nothing, and the model that was meant keeps the settings of all others. The name "
        "may be right where it is one of a server that serves more than this workspace.",
        Severity.WARNING,
        wrong="cache: {models: {intnet: {ttl_s: 60}}}",
        right="cache: {models: {intent: {ttl_s: 60}}}",
    ),
)

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in (
        *DOCUMENT_RULES,
        *WIRING_RULES,
        *TEXT_RULES,
        *(check.rule for check in CHECKS),
        *LAYOUT_RULES,
        BATCH_MATES,
        *ENGINE_RULES,
        *RUN_RULES,
    )
}
