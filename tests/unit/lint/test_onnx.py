"""M001 to M006, M010, M014 to M016: a config beside its ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx_samples
import pytest
from lint_repositories import found, model
from onnx_completion_models import MODELS
from onnx_graphs import class_token, recurrent, reshaped
from onnx_refusals import ELSEWHERE, LOAD_ERRORS, flat
from onnx_samples import (
    Sample,
    controlled,
    custom,
    doubled,
    first_row,
    identity,
    onnx_model,
    overridable,
    scaled,
    sequence,
)

from mmctl.diagnostics import Finding, Severity
from mmctl.lint.checker import check_repository
from mmctl.lint.onnx.batches import ONNX_BATCH_CHECKS
from mmctl.lint.onnx.load import ONNX_LOAD_CHECKS
from mmctl.lint.onnx.tensors import ONNX_TENSOR_CHECKS
from mmctl.lint.repository import Target, read_repository
from mmctl.triton.releases import parse_release

pytest.importorskip("onnx")

onnx_config = partial(model, backend="onnxruntime")
CHECKS = (*ONNX_TENSOR_CHECKS, *ONNX_BATCH_CHECKS, *ONNX_LOAD_CHECKS)

X = {"x": ("FLOAT", ["N", 4])}
Y = {"y": ("FLOAT", ["N", 4])}


def judged(
    folder: Path, file: Callable[[], bytes], config: str | None, target: Target | None = None
) -> tuple[Finding, ...]:
    files: dict[str, str | bytes] = {"m/1/model.onnx": file()}
    if config is not None:
        files["m/config.pbtxt"] = config
    return found(folder, files, CHECKS, target=target)


def summary(findings: Sequence[Finding]) -> list[tuple[str, str, int]]:
    return [(finding.severity.value, finding.code, finding.line) for finding in findings]


def text(findings: Sequence[Finding]) -> str:
    return "\n".join(finding.text() for finding in findings)


def two() -> bytes:
    """a, b [N,4] -> y."""
    return onnx_model(
        {"a": ("FLOAT", ["N", 4]), "b": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", ["N", 4])},
        [("Add", ["a", "b"], ["y"], {})],
    )


def picture() -> bytes:
    """img[1,3,8,8] -> y[1,10], as exported with one picture."""
    return onnx_model(
        {"img": ("FLOAT", [1, 3, 8, 8])},
        {"y": ("FLOAT", [1, 192])},
        [("Flatten", ["img"], ["y"], {})],
    )


def turned() -> bytes:
    """x[N,3] -> seg[3,N]."""
    return onnx_model(
        {"x": ("FLOAT", ["N", 3])},
        {"seg": ("FLOAT", [3, "N"])},
        [("Transpose", ["x"], ["seg"], {"perm": [1, 0]})],
    )


def turned_open() -> bytes:
    """x[N,K] -> seg[K,N]."""
    return onnx_model(
        {"x": ("FLOAT", ["N", "K"])},
        {"seg": ("FLOAT", ["K", "N"])},
        [("Transpose", ["x"], ["seg"], {"perm": [1, 0]})],
    )


# Each row: the file, the config, and `severity code line` of what is found. The config's first line
# is the backend, the second max_batch_size; then come inputs and outputs, a line each.
ROWS: dict[str, tuple[Callable[[], bytes], str | None, list[tuple[str, str, int]], str]] = {
    # M001
    "dims include the batch": (
        identity,
        onnx_config("x:FP32[-1,4]", "y:FP32[-1,4]", batch=8),
        [("error", "M001", 3), ("error", "M001", 4)],
        "input `x` is [N,4] in model.onnx, and [-1,-1,4] with the batch in the config: dims must "
        "not include the batch",
    ),
    "one cause is one finding": (
        picture,
        onnx_config("img:FP32[3,8,8]", "y:FP32[192]", batch=8),
        [("error", "M001", 3)],
        "input `img` is [1,3,8,8] in model.onnx: the first axis must be an open batch, as "
        "max_batch_size is 8; the same for output `y` [1,192]",
    ),
    "fixed batch without batching": (
        picture,
        onnx_config("img:FP32[1,3,8,8]", "y:FP32[1,192]"),
        [],
        "",
    ),
    "batch on another axis": (
        turned,
        onnx_config("x:FP32[3]", "seg:FP32[-1]", batch=4),
        [("error", "M001", 4)],
        "its batch `N` is axis 1: export with the batch as the first axis",
    ),
    "batch on another axis, and the first is open": (
        turned_open,
        onnx_config("x:FP32[-1]", "seg:FP32[-1]", batch=4),
        [("error", "M001", 4)],
        "output `seg` is [K,N] in model.onnx, and its first axis is not the batch",
    ),
    "a batch is wanted and nothing else said": (
        picture,
        'backend: "onnxruntime"\nmax_batch_size: 4\n',
        [("error", "M001", 2)],
        "max_batch_size is 4, and model.onnx has no open first axis for it: "
        "input `img` is [1,3,8,8]; output `y` is [1,192]",
    ),
    "Triton sets the batch, and dims include it": (
        identity,
        onnx_config("x:FP32[-1,4]", ""),
        [("error", "M001", 3)],
        "Triton completes max_batch_size to 4",
    ),
    # M002
    "an open output over a fixed one": (
        partial(identity, shape=["N", 6, 5]),
        onnx_config("x:FP32[6,5]", "y:FP32[-1,5]", batch=8),
        [("error", "M002", 4)],
        "output `y` is [N,6,5] in model.onnx, and [-1,-1,5] with the batch in the config",
    ),
    "a fixed output over an open one": (
        partial(identity, shape=["N", "K"]),
        onnx_config("x:FP32[7]", "y:FP32[7]", batch=8),
        [("error", "M002", 4)],
        "write `dims: [ -1 ]`",
    ),
    "an input may be narrower": (
        partial(identity, shape=["N", "K"]),
        onnx_config("x:FP32[7]", "y:FP32[-1]", batch=8),
        [],
        "",
    ),
    "an input may not be wider": (
        identity,
        onnx_config("x:FP32[-1]", "y:FP32[4]", batch=8),
        [("error", "M002", 3)],
        "write `dims: [ 4 ]`",
    ),
    "without batching dims have all axes": (
        identity,
        onnx_config("x:FP32[4]", "y:FP32[4]"),
        [("error", "M002", 3), ("error", "M002", 4)],
        "or a max_batch_size above 0",
    ),
    "the reshape counts": (
        identity,
        onnx_config("x:FP32[2,2]=[4]", "y:FP32[2,2]=[4]", batch=8),
        [],
        "",
    ),
    "what only ONNX Runtime can know is a warning": (
        MODELS["nonzero"],
        onnx_config("x:FP32[-1,4]", "y:INT64[5,2]"),
        [("warning", "M002", 4)],
        "ONNX Runtime may know it better, which `mmctl check --run` asks",
    ),
    "a list of one value a row": (
        partial(identity, shape=["N"]),
        onnx_config("x:FP32[1]=[]", "y:FP32[1]=[]", batch=8),
        [],
        "",
    ),
    # M003
    "another type": (
        partial(identity, "INT64"),
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M003", 3), ("error", "M003", 4)],
        "input `x` is TYPE_INT64 in model.onnx, and TYPE_FP32 in the config",
    ),
    "text is TYPE_STRING": (
        partial(identity, "STRING"),
        onnx_config("x:STRING[4]", "y:STRING[4]", batch=8),
        [],
        "",
    ),
    # M004
    "a misspelt output": (
        identity,
        onnx_config("x:FP32[4]", "out:FP32[4]", batch=8),
        [("error", "M004", 4)],
        "output `out` is not in model.onnx, which has `y`",
    ),
    "a misspelt input is one mistake": (
        two,
        onnx_config("a:FP32[4] bb:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M004", 4)],
        "did you mean `b`?",
    ),
    "an input that the export dropped": (
        identity,
        onnx_config("x:FP32[4] mask:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M004", 4)],
        "input `mask` is not in the model: model.onnx has 1 input, `x`, and the config has 2",
    ),
    "an input left out": (
        two,
        onnx_config("a:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M004", 3)],
        "model.onnx has 2 inputs, `a`, `b`, and the config has 1: `b` is missing",
    ),
    "outputs may be left out": (
        MODELS["bertlike"],
        onnx_config(
            "input_ids:INT64[-1] attention_mask:INT64[-1] token_type_ids:INT64[-1]",
            "pooler_output:INT64[1]=[]",
            batch=8,
        ),
        [],
        "",
    ),
    "a default is optional": (
        overridable,
        onnx_config("x:FP32[2,4] scale:FP32[1]", "y:FP32[2,4]"),
        [("error", "M004", 4)],
        "input `scale` has a default in model.onnx, and is not optional in the config",
    ),
    "a default that is optional": (
        overridable,
        onnx_config("x:FP32[2,4] scale:FP32[1]?", "y:FP32[2,4]"),
        [],
        "",
    ),
    "what is needed is not optional": (
        identity,
        onnx_config("x:FP32[-1,4]?", "y:FP32[-1,4]"),
        [("error", "M004", 3)],
        "input `x` is optional, and has no default in model.onnx",
    ),
    # M005
    "a scalar output, reshaped away": (
        scaled,
        onnx_config("x:FP32[4] s:FP32[1]=[]", "total:FP32[1]=[]", batch=8),
        [("warning", "M005", 4), ("error", "M005", 5)],
        "any request kills the server",
    ),
    "a scalar output as one value": (
        scaled,
        onnx_config("x:FP32[4] s:FP32[1]=[]", "total:FP32[1]", batch=8),
        [("warning", "M005", 4), ("error", "M005", 5)],
        "a batch of two or more fails",
    ),
    "a scalar output as more": (
        scaled,
        onnx_config("x:FP32[-1,4] s:FP32[1]", "total:FP32[4]"),
        [("error", "M005", 5)],
        "output `total` is a scalar in model.onnx, and [4] in the config",
    ),
    "scalars without batching": (
        scaled,
        onnx_config("x:FP32[-1,4] s:FP32[1]", "total:FP32[1]"),
        [],
        "",
    ),
    # M006
    "stated open and fixed by the graph": (
        partial(reshaped, 1, 4, stated=["N", 4]),
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M006", 4)],
        "output `y` is [N,4] by what model.onnx states, and the graph yields [1,4]: the batch is "
        "fixed in it",
    ),
    "fewer rows than the batch": (
        first_row,
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M006", 4)],
        "output `y` of model.onnx has 1 row for a batch of 2",
    ),
    "more rows than the batch": (
        doubled,
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M006", 4)],
        "has 4 rows for a batch of 2",
    ),
    "one row of one is right": (
        first_row,
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=1),
        [],
        "",
    ),
    "a token for one row": (
        class_token,
        onnx_config("x:FP32[4,8]", "y:FP32[40]", batch=8),
        [("error", "M006", 4)],
        "",
    ),
    "a first state for one row": (
        partial(recurrent, "RNN", 1),
        onnx_config("x:FP32[4]", "y:FP32[3]", batch=8),
        [("error", "M006", 2)],
        "`last` (RNN) in model.onnx starts from a constant state for 1 row",
    ),
    "a first state for one row, and one row": (
        partial(recurrent, "RNN", 1),
        onnx_config("x:FP32[4]", "y:FP32[3]", batch=1),
        [],
        "",
    ),
    # M010
    "a sequence, even one left out": (
        MODELS["mapout"],
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [("error", "M010", 4)],
        "output `p` of model.onnx is seq(map(int64,tensor(float))), and Triton serves tensors only",
    ),
    "a type that Triton lacks": (
        MODELS["bf16"],
        onnx_config("x:BF16[4]", "y:BF16[4]", batch=8),
        [("error", "M010", 3), ("error", "M010", 4)],
        "a type that Triton's ONNX backend does not serve",
    ),
    "a type that Triton lacks, inside": (
        MODELS["bf16mid"],
        onnx_config("x:FP32[4]", "y:FP32[4]", batch=8),
        [],
        "",
    ),
    "an axis of length 0, completed": (
        partial(identity, shape=["N", 0]),
        None,
        [("error", "M010", 1), ("error", "M010", 1)],
        "input `x` of model.onnx is [N,0], and Triton serves no axis of length 0",
    ),
    # M014
    "optional inputs do not batch": (
        MODELS["overridable"],
        onnx_config("x:FP32[4] scale:FP32[1]?", "y:FP32[4]", batch=8),
        [("error", "M014", 4)],
        "input `scale` is optional, and max_batch_size is 8",
    ),
    "ragged rows need a flat model": (
        identity,
        onnx_config("", "y:FP32[4]", batch=8)
        + 'input { name: "x" data_type: TYPE_FP32 dims: [4] allow_ragged_batch: true }',
        [("error", "M014", 4)],
        "for which the model must take one list, [-1], and not be optional, and model.onnx has "
        "[N,4]",
    ),
    # M015
    "strings by another axis": (
        custom(
            {"x": ("STRING", ["N", 1]), "keep": ("BOOL", ["M"])},
            {"y": ("STRING", ["K", 1])},
            ("Compress", ["x", "keep"], ["y"], {"axis": 0}),
        ),
        onnx_config("x:STRING[1] keep:BOOL[1]=[]", "y:STRING[1]", batch=8),
        [("warning", "M015", 5)],
        "for strings nothing checks that, the answer holds foreign memory or the server dies",
    ),
    "strings by the batch's own axis": (
        partial(identity, "STRING", ["N", 1]),
        onnx_config("x:STRING[1]", "y:STRING[1]", batch=8),
        [],
        "",
    ),
    # M016
    "a flat output without scattering": (
        partial(flat, "counts"),
        onnx_config("", "y:FP32[1]=[]", batch=8)
        + 'input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }\n'
        'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_INT32 '
        'source_input: "x" }',
        [("warning", "M016", 3)],
        "it is split by batch, so requests get rows of others",
    ),
    # nothing to say
    "no config at all": (identity, None, [], ""),
    "another backend": (identity, model("x:INT8[1]", "z:INT8[1]"), [], ""),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_mistake_is_found_at_its_place(tmp_path: Path, name: str) -> None:
    file, config, expected, said = ROWS[name]
    findings = judged(tmp_path, file, config)
    assert summary(findings) == expected, text(findings)
    assert said in text(findings)


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    config = onnx_config("a:INT32[4] c:FP32[4] d:FP32[4]", "y:FP32[9] z:FP32[1]", batch=8)
    findings = judged(tmp_path, two, config)
    assert summary(findings) == [
        ("error", "M003", 3),
        ("error", "M004", 4),
        ("error", "M004", 5),
        ("error", "M002", 6),
        ("error", "M004", 7),
    ]


# ---------------------------------------------------------------- versions


def test_a_mistake_of_one_version_names_it(tmp_path: Path) -> None:
    config = onnx_config("x:FP32[4]", "y:FP32[4]", batch=8, more="version_policy { all { } }")
    files: Mapping[str, str | bytes] = {
        "m/config.pbtxt": config,
        "m/1/model.onnx": identity(),
        "m/2/model.onnx": identity("INT64"),
    }
    findings = found(tmp_path, files, CHECKS)
    assert [f.message.endswith("in the config (version 2)") for f in findings] == [True, True]


def test_a_mistake_of_all_versions_is_told_once(tmp_path: Path) -> None:
    config = onnx_config("x:FP32[4]", "y:FP32[5]", batch=8, more="version_policy { all { } }")
    files = {"m/config.pbtxt": config, "m/1/model.onnx": identity(), "m/2/model.onnx": identity()}
    (finding,) = found(tmp_path, files, CHECKS)
    assert "version" not in finding.message


def test_versions_that_triton_does_not_load_are_not_judged(tmp_path: Path) -> None:
    config = onnx_config("x:FP32[4]", "y:FP32[4]", batch=8)
    files: Mapping[str, str | bytes] = {
        "m/config.pbtxt": config,
        "m/1/model.onnx": b"broken",
        "m/2/model.onnx": identity(),
    }
    assert found(tmp_path, files, CHECKS) == ()


@pytest.mark.parametrize(
    "filename", ["net.onnx", "sub/net.onnx", "../net.onnx", "net", "./model.onnx"]
)
def test_the_file_may_have_another_name(tmp_path: Path, filename: str) -> None:
    more = f'default_model_filename: "{filename}"'
    config = onnx_config("x:FP32[4]", "y:FP32[5]", batch=8, more=more)
    inside = f"{filename}/model.onnx" if filename == "net" else filename
    files: dict[str, str | bytes] = {"m/config.pbtxt": config, "m/1/": ""}
    files[f"m/1/{inside}"] = identity()
    assert [f.code for f in found(tmp_path, files, CHECKS)] == ["M002"]


# ---------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("release", "codes"),
    [(None, ["M010", "M010"]), ("24.10", ["M010", "M010"]), ("26.03", [])],
)
def test_bf16_came_to_the_backend_in_2026(
    tmp_path: Path, release: str | None, codes: list[str]
) -> None:
    target = Target(release=parse_release(release) if release else None)
    config = onnx_config("x:BF16[4]", "y:BF16[4]", batch=8)
    assert [f.code for f in judged(tmp_path, MODELS["bf16"], config, target)] == codes


# ---------------------------------------------------------------- the same rules as the backend's

ONLY_A_SERVER_SEES = {
    "custom operators are missing",
    "file is missing",
    "folder without model.onnx",
}
"""Libraries are in the server's container; files that are not there are a matter of the layout."""

LOADED = {name for name, (_, words) in LOAD_ERRORS.items() if ELSEWHERE not in words}


def errors_of(folder: Path, sample: Sample) -> list[str]:
    sample.write(folder)
    read, _ = read_repository(folder, ".", Target())
    findings = check_repository(read, checks=CHECKS)
    return [finding.text() for finding in findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("name", sorted(LOADED - ONLY_A_SERVER_SEES))
def test_what_the_backend_refuses_is_an_error(tmp_path: Path, name: str) -> None:
    assert errors_of(tmp_path, LOAD_ERRORS[name][0])


GOOD = {
    name: sample
    for name, sample in vars(onnx_samples).items()
    if isinstance(sample, Sample) and name not in ("SHORT", "DOUBLED", "TOTAL")
}


@pytest.mark.parametrize("name", GOOD)
def test_what_the_backend_serves_is_none(tmp_path: Path, name: str) -> None:
    assert errors_of(tmp_path, GOOD[name]) == []


def test_controls_are_inputs_of_the_model(tmp_path: Path) -> None:
    sample = Sample("m", controlled(2), more=sequence("int32"))
    (error,) = errors_of(tmp_path, sample)
    assert "M014 sequence control `START` in model has dims [2] but dims [1] is expected" in error


def test_a_control_counts_as_an_input(tmp_path: Path) -> None:
    assert errors_of(tmp_path, replace(onnx_samples.CONTROLLED, name="m")) == []


# ---------------------------------------------------------------- NVIDIA's own set

QA = "conformance/model_config/autofill_noplatform"


def added(words: Mapping[str, str], *shape: int | str) -> Callable[[], bytes]:
    """INPUT0, INPUT1 -> OUTPUT0, OUTPUT1, as NVIDIA's test models have them."""

    def make() -> bytes:
        kind, result = words["input"], words["output"]
        to = {"INT8": 3, "FLOAT16": 10}[result]
        return onnx_model(
            {f"INPUT{n}": (kind, shape) for n in (0, 1)},
            {f"OUTPUT{n}": (result, shape) for n in (0, 1)},
            [
                ("Add", ["INPUT0", "INPUT1"], ["sum"], {}),
                ("Sub", ["INPUT0", "INPUT1"], ["difference"], {}),
                ("Cast", ["sum"], ["OUTPUT0"], {"to": to}),
                ("Cast", ["difference"], ["OUTPUT1"], {"to": to}),
            ],
        )

    return make


INTEGERS = {"input": "INT32", "output": "INT8"}
BATCHED, PLAIN = added(INTEGERS, "N", 16), added(INTEGERS, 16)
HALVES = custom(
    {"INPUT0": ("FLOAT16", ["N", "a", "b"])},
    {"OUTPUT0": ("FLOAT16", ["N", "a", "b"])},
    ("Identity", ["INPUT0"], ["OUTPUT0"], {}),
)

NVIDIAS: dict[str, tuple[Callable[[], bytes], list[tuple[str, str]]]] = {
    "/onnx/bad_input_dims": (BATCHED, [("M002", "`INPUT0` is [N,16]")]),
    "/onnx/bad_max_batch_size": (PLAIN, [("M001", "no open first axis")]),
    "/onnx/bad_output_dims": (BATCHED, [("M002", "`OUTPUT1` is [N,16]")]),
    "/onnx/too_few_inputs": (BATCHED, [("M004", "has 2 inputs")]),
    "/onnx/too_many_inputs": (BATCHED, [("M004", "`INPUT_EXTRA` is not in the model")]),
    "/onnx/unknown_input": (BATCHED, [("M004", "`INPUT_UNKNOWN` is not in the model")]),
    "/onnx/unknown_output": (BATCHED, [("M004", "`OUTPUT_UNKNOWN` is not in")]),
    "_success/onnx/cpu_instance": (HALVES, []),
    "_success/onnx/empty_config": (BATCHED, []),
    "_success/onnx/no_config": (BATCHED, []),
    "_success/onnx/no_config_no_batch": (PLAIN, []),
}


@pytest.mark.parametrize("name", NVIDIAS)
def test_nvidias_configs_are_judged_as_nvidia_says(
    tmp_path: Path, shared_dir: Path, name: str
) -> None:
    make, expected = NVIDIAS[name]
    config = shared_dir / f"{QA}{name}" / "config.pbtxt"
    findings = judged(tmp_path, make, config.read_text() if config.is_file() else None)
    assert len(findings) == len(expected), text(findings)
    for finding, (code, said) in zip(findings, expected, strict=True):
        assert (finding.code, finding.severity) == (code, Severity.ERROR)
        assert said in finding.message
