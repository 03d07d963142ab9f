"""NVIDIA's own set of right and wrong configs: what can be told from the text must be told.

Triton's message and ours differ in words; here is which of ours says the same cause as which of
Triton's. Names in a message of Triton's must be named in ours.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lint_repositories import found

from mmctl.diagnostics import Finding, Severity
from mmctl.lint.tables import CHECKS

SETS = Path(__file__).parents[4] / "shared" / "conformance" / "model_config"

CAUSES: tuple[tuple[str, str, str], ...] = (
    # Triton's words, our code, our words; {0}, {1} are groups of Triton's.
    (r"Could not determine backend for model '(.*?)'", "C007", "determine the backend of `{0}`"),
    (r"unable to find backend library for backend '(.*?)'", "C008", "unknown backend `{0}`"),
    (r"unable to find backend library '(.*?)'", "C009", "no backend library `{0}`"),
    (r"backend library name '(.*?)' escapes", "C009", "library `{0}` lies outside"),
    (r"'platform' and 'backend' pair, got:(.*?), (.*)", "C006", "`{0}` does not belong to .*`{1}`"),
    (r"'max_batch_size' must be non-negative", "C015", "must not be negative"),
    # Tensors.
    (r"model (\w+ '.*?') must specify 'data_type'", "C014", "{0} has no `data_type`"),
    (r"model (\w+ '.*?') dimension must be integer >= 1", "C011", "of {0} .* integer of 1 or more"),
    (
        r"model (\w+ '.*?') reshape dimensions must be integer",
        "C012",
        "of {0} .*neither an integer",
    ),
    (r"model (\w+ '.*?') has different size for dims and resh", "C012", "of {0} has another size"),
    (r"model (\w+ '.*?') has different number of variable", "C012", "of {0} .*number of variable"),
    (r"model (\w+ '.*?') cannot have empty reshape", "C012", "{0} has an empty reshape"),
    (r"kind '(.*?)' expects 1 source input, got (\d)", "C018", "{0}. expects 1 .* got {1}"),
    (r"unknown source input name '(.*?)'", "C018", "unknown source input `{0}`"),
    (r"unknown target output name '(.*?)'", "C018", "unknown target output `{0}`"),
    (r"target output name '(.*?)' can only be specified once", "C018", "`{0}` stands here twice"),
    # Schedulers.
    (r"specifies multiple (\w+) tensors", "S003", "`{0}` has multiple tensors"),
    (r"control tensor '(.*?)' is specified for multiple", "S003", "`{0}` is specified for multi"),
    (r"must specify either .* for (CONTROL_\w+)", "S003", "`{0}` has no value"),
    (r"default priority level must be in range .*\[1, (\d)", "B006", "default_.* range 1 to {0}"),
    (r"priority queue policy must have .*\[1, (\d)", "B006", "priority_queue.* range 1 to {0}"),
    (r"Only one priority level is allowed", "B006", "only one priority level"),
    (r"can not have DELAY as timeout action", "B006", "timeout action DELAY"),
    # Instances.
    (r"has kind KIND_CPU but specifies", "G003", "has kind KIND_CPU but specifies GPUs"),
    (r"specifies invalid or unsupported gpu id (-?\d+)", "G002", "invalid gpu id {0}:"),
    # Metrics.
    (r"must specify non-empty 'buckets'", "C019", "needs `buckets`"),
    (r"must specify non-empty 'family'", "C019", "needs a `family`"),
    (r"must specify 'histogram_options'", "C019", "needs `histogram_options`"),
    (r"must specify 'metric_identifier'", "C019", "needs a `metric_identifier`"),
    (r"'(.*?)' in 'metric_identifier' is not a customizable", "C019", "`{0}` is no customizable"),
    # Ensembles.
    (r"circular dependency between ensembles: (\w+)", "E020", "circle: .*`{0}`"),
    (r"ensemble scheduling must be set", "E018", "the ensemble has no step"),
    (r"must have platform type 'ensemble' and empty backend", "E012", "an ensemble has no backend"),
    (r"ensemble scheduling cannot be set", "E012", "needs the platform `ensemble`"),
    (r"instance group should not be specified", "E012", "takes no `instance_group`"),
    (r"(optimization) should not be specified", "E012", "takes no `{0}`"),
    (r"(model_warmup) can not be specified", "E012", "takes no `{0}`"),
    (r"must specify 'step'", "E018", "has no step"),
    (r"must specify '(\w+)' in step (\d)", "E018", "step {1} .*has no `{0}`"),
    (r"tensor (\w+): inconsistent data type: (\w+) .* while (\w+)", "E006", "`{0}` is {1} .*{2}"),
    (r"tensor (\w+): inconsistent shape", "E007", r"`{0}` is \["),
    (r"maximum batch size (\d), .* model (\w+) .* to be (\d)", "E008", "is {0}, .*`{1}`.*most {2}"),
    (r"inputs originated from different decoupled", "E011", "joins? `"),
    (r"non-existing input (\w+) in model (\w+)", "E005", "`{1}` has no input `{0}`"),
    (r"non-existing output (\w+) in model (\w+)", "E005", "`{1}` has no output `{0}`"),
    (r"on '(\w+)' whose required version (\d) is not loaded", "E014", "wants version {1}, .*`{0}`"),
    (r"not available or ambiguous: (\w+)", "E016", "model `{0}` is not in the repository"),
    (r"tensor '(\w+)' can appear in an output map only once", "E009", "`{0}` is written twice"),
    (r"tensor '(\w+)' is unused in ensemble", "E002", "`{0}` is written by .* and never read"),
    (r"input (\w+) in model (\w+) is not mapped", "E004", "not map input `{0}` of `{1}`"),
    (r"ensemble input '(\w+)' .* is not used", "E001", "input `{0}` .* read by no step"),
    (r"ensemble output '(\w+)' .* is not used", "E002", "output `{0}` .* written by no step"),
    (r"depending tensors, '(\w+)', is not connected", "E002", "`{0}` is read by .* by none"),
    (r"output '\w+' for ensemble '\w+' is not written", "E010", "waits for itself"),
)

SPECIAL = "special_cases/"
"""Labelled `other`: they can be told from the text all the same."""

TENSORS = (
    'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }\n'
)


def labels(should_load: str) -> list[Any]:
    if not SETS.is_dir():
        reason = "the data folder beside the checkout does not exist"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="no set")]
    with (SETS / "LABELS.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        pytest.param(row, id=row["set"])
        for row in rows
        if row["should_load"] == should_load
        and (row["decidable"] == "static" or row["set"].startswith(SPECIAL))
    ]


def configs_of(row: Mapping[str, str], *, as_it_lies: bool) -> dict[str, str]:
    """Model -> config: what NVIDIA's test makes of the set. Its configs without a right platform
    get one, and what is said of metrics is added to a config.
    """
    folder = SETS / row["set"]
    if (folder / "partial.pbtxt").is_file():
        part = (folder / "partial.pbtxt").read_text()
        return {folder.name: f'backend: "identity"\n{TENSORS}{part}'}
    if (folder / "config.pbtxt").is_file() and not siblings(row):
        configs = {folder.name: (folder / "config.pbtxt").read_text()}
    else:
        around = folder.parent if siblings(row) else folder
        configs = {path.parent.name: path.read_text() for path in around.glob("*/config.pbtxt")}
    if row["set"].startswith("noautofill_platform/") and not as_it_lies:
        line = '\nplatform: "pytorch_libtorch"\n'
        configs = {n: re.sub(r"(?m)^platform:.*\n", "", c) + line for n, c in configs.items()}
    return configs


def siblings(row: Mapping[str, str]) -> bool:
    """Whether the models of the set lie beside the one that it is called after."""
    parts = row["set"].split("/")
    return len(parts) == 4 and parts[1] == "ensemble"


def judge(folder: Path, row: Mapping[str, str], *, as_it_lies: bool = False) -> list[Finding]:
    files = {}
    for name, config in configs_of(row, as_it_lies=as_it_lies).items():
        files[f"{name}/config.pbtxt"] = config
        if name != "no_version":
            files[f"{name}/1/"] = ""
        if 'platform: "pytorch_libtorch"' in config:
            files[f"{name}/1/model.pt"] = ""
    return [f for f in found(folder, files, CHECKS) if f.severity is not Severity.INFO]


def cause(message: str) -> tuple[str, str]:
    """Our code for what Triton says, and a pattern for our words."""
    message = message.replace("\\", "")
    for theirs, code, ours in CAUSES:
        if match := re.search(theirs, message):
            groups = [re.escape(group).replace("'", "`") for group in match.groups()]
            return code, ours.format(*groups)
    raise AssertionError(f"no row for: {message}")


def named(findings: list[Finding], message: str) -> list[Finding]:
    code, words = cause(message)
    return [f for f in findings if f.code == code and re.search(words, f.message)]


@pytest.mark.parametrize("row", labels("no"))
def test_a_wrong_config_is_found_with_its_cause(tmp_path: Path, row: Mapping[str, str]) -> None:
    findings = judge(tmp_path, row)
    told = named(findings, row["expected_message"])
    assert told, [finding.text() for finding in findings]
    only_a_warning = "valid_config_with_warn" in row["set"]
    wanted = Severity.WARNING if only_a_warning else Severity.ERROR
    assert all(finding.severity is wanted for finding in told)


@pytest.mark.parametrize("row", labels("no"))
def test_it_is_found_in_the_files_as_they_lie(tmp_path: Path, row: Mapping[str, str]) -> None:
    assert named(judge(tmp_path, row, as_it_lies=True), row["expected_message"])


@pytest.mark.parametrize("row", labels("no"))
def test_one_mistake_is_told_once(tmp_path: Path, row: Mapping[str, str]) -> None:
    """Besides the cause, only what is wrong by itself: models that are left out, and names."""
    told = named(findings := judge(tmp_path, row), row["expected_message"])
    besides = {"E016", "C005"} | set(ALSO_WRONG.get(row["set"].rpartition("/")[2], ()))
    assert [f.text() for f in findings if f not in told and f.code not in besides] == []


ALSO_WRONG = {
    "no_version": ["R002"],
    "has_backend": ["E018"],
    "inconsistent_data_type": ["E006"],
    "inconsistent_shape": ["E007"],
    "circular_dependency": ["E020"],
    "no_input_map": ["E002"],
    "no_output_map": ["E002"],
    "redundant_tensor_as_input": ["E002"],
    "tensor_to_input_overmapped": ["E003"],
    "ensemble_scheduling_set": ["E012"],
    "invalid_platform": ["R004", "R005"],
}


@pytest.mark.parametrize("row", labels("yes"))
def test_a_right_config_stays_silent(tmp_path: Path, row: Mapping[str, str]) -> None:
    assert [finding.text() for finding in judge(tmp_path, row)] == []


@pytest.mark.skipif(not SETS.is_dir(), reason="the data folder beside the checkout does not exist")
def test_the_whole_set_was_judged() -> None:
    wrong, right = len(list(labels("no"))), len(list(labels("yes")))
    assert (wrong, right) == (103, 6)
