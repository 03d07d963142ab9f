"""Further mistakes of the kinds that people report: each is found, what mends it is silent.

The repositories are written here; each pair differs by what mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from file_trees import Files, write
from lint_repositories import ensemble, model
from onnx_samples import identity, onnx_model

from mmctl.building.check import check
from mmctl.diagnostics import Severity
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

X, Y = "x:FP32[4]", "y:FP32[4]"
CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@dataclass(frozen=True)
class Case:
    """Two repositories; in the first the finding `code` stands on `line` of `path`."""

    name: str
    code: str
    path: str
    line: int
    wrong: Callable[[], Files]
    right: Callable[[], Files]
    severity: Severity = ERROR
    target: Target = field(default_factory=Target)


def python(config: str, name: str = "m", code: str = CODE) -> Files:
    return {f"{name}/config.pbtxt": config, f"{name}/1/model.py": code}


def text(code: str, line: int, name: str, wrong: str, right: str, **more: object) -> Case:
    """One Python model `m`, whose config differs."""
    return Case(
        name,
        code,
        "m/config.pbtxt",
        line,
        lambda: python(wrong),
        lambda: python(right),
        **more,  # type: ignore[arg-type]
    )


def onnx(
    code: str, line: int, name: str, config: str, graph: bytes, right: tuple[str, bytes]
) -> Case:
    """One ONNX model `m`: a config and a file, and both as they fit."""

    def made(text: str, file: bytes) -> Files:
        return {"m/config.pbtxt": text, "m/1/model.onnx": file}

    return Case(
        name,
        code,
        "m/config.pbtxt",
        line,
        lambda: made(config, graph),
        lambda: made(*right),
    )


def flow(
    code: str, line: int, name: str, wrong: str, right: str, models: dict[str, str], **more: object
) -> Case:
    """An ensemble `flow` over Python models; its config differs."""

    def made(config: str) -> Files:
        around: dict[str, str | bytes] = {}
        for step, text in models.items():
            around |= python(text, step)
        return around | {"flow/config.pbtxt": config, "flow/1/": ""}

    return Case(
        name,
        code,
        "flow/config.pbtxt",
        line,
        lambda: made(wrong),
        lambda: made(right),
        **more,  # type: ignore[arg-type]
    )


def caller(name: str, line: int, code: str, wrong: str, right: str, **more: object) -> Case:
    """A Python model `caller`, that gets several requests at once and calls `worker`; the lines
    of `execute` differ.
    """

    def made(body: str) -> Files:
        lines = "\n".join(f"        {row}" for row in body.splitlines())
        start = "async def" if "await" in body else "def"
        program = (
            "import asyncio\n\nimport triton_python_backend_utils as pb\n\n\n"
            f"class TritonPythonModel:\n    {start} execute(self, requests):\n{lines}\n"
        )
        decoupled = "model_transaction_policy { decoupled: true }"
        return (
            dict(python(model(X, Y, batch=4, more="dynamic_batching { }\n"), "caller", program))
            | dict(python(model("q:FP32[4]", "scores:FP32[4]"), "worker"))
            | dict(python(model("q:FP32[4]", "scores:FP32[4]", more=decoupled), "teller"))
        )

    return Case(
        name,
        code,
        "caller/1/model.py",
        line,
        lambda: made(wrong),
        lambda: made(right),
        **more,  # type: ignore[arg-type]
    )


def warm_up(values: str) -> str:
    tensor = f'key: "x" value {{ data_type: TYPE_FP32 {values} }}'
    return f'model_warmup {{ name: "w" batch_size: 1 inputs {{ {tensor} }} }}\n'


def batch_on_axis_1() -> bytes:
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", [4, "N"])},
        [("Transpose", ["x"], ["y"], {"perm": [1, 0]})],
    )


def scalar_output() -> bytes:
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"y": ("FLOAT", [])},
        [("ReduceSum", ["x"], ["y"], {"keepdims": 0})],
    )


ONNX_MODEL = {"backend": "onnxruntime"}

CALL = 'pb.InferenceRequest(model_name="{0}", requested_output_names=["{1}"], inputs=[x])'
LOOP = """\
out = []
for request in requests:
    x = pb.Tensor("q", pb.get_input_tensor_by_name(request, "x").as_numpy())
    answer = {0}
    if answer.has_error():
        raise pb.TritonModelException(answer.error().message())
    scores = pb.get_output_tensor_by_name(answer, "{1}").as_numpy()
    out.append(pb.InferenceResponse([pb.Tensor("y", scores)]))
return out"""


def bls(model_name: str, output: str, call: str = ".exec()", got: str | None = None) -> str:
    return LOOP.format(CALL.format(model_name, output) + call, got or output)


CHAIN = {
    "a": model("x:FP32[4]", "h:FP32[4]"),
    "b": model("h:FP32[4]", "y:FP32[4]"),
    "a8": model("x:FP32[4]", "h:FP32[4]", batch=8),
    "b4": model("h:FP32[4]", "y:FP32[4]", batch=4),
    "two": model("p:FP32[4] q:FP32[4]", "y:FP32[4]"),
    "half": model("h:FP16[4]", "y:FP32[4]"),
    "maybe": model("x:FP32[4]?", "y:FP32[4]"),
    "stream": model("x:FP32[4]", "h:FP32[4]", more="model_transaction_policy { decoupled: true }"),
}
GOOD = ensemble(X, Y, "a x=x -> h=t", "b h=t -> y=y")

CASES = [
    text("C001", 3, "numpy's name of a type", model("x:INT[4]", Y), model("x:INT32[4]", Y)),
    text(
        "C001",
        5,
        "an instance kind without its prefix",
        model(X, Y, more="instance_group { kind: CPU }\n"),
        model(X, Y, more="instance_group { kind: KIND_CPU }\n"),
    ),
    text(
        "C002",
        2,
        "a placeholder in dollars and braces",
        model(X, Y).replace("max_batch_size: 0", "max_batch_size: ${triton_max_batch_size}"),
        model(X, Y, batch=8),
    ),
    text(
        "C002",
        2,
        "a placeholder of Jinja",
        model(X, Y).replace("max_batch_size: 0", "max_batch_size: {{ max_batch }}"),
        model(X, Y, batch=8),
    ),
    text(
        "C003",
        3,
        "a message without a value",
        'backend: "python"\nmax_batch_size: 8\ninput [ { name: "x" data_type: dims: [ 4 ] } ]\n',
        'backend: "python"\nmax_batch_size: 8\n'
        'input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n',
    ),
    text(
        "C004",
        5,
        "a misspelt field",
        model(X, Y, batch=4, more="dynamic_batchin { }\n"),
        model(X, Y, batch=4, more="dynamic_batching { }\n"),
    ),
    text(
        "C004",
        5,
        "a field newer than the server",
        model(
            X, Y, more='model_metrics { metric_control { metric_identifier { family: "f" } } }\n'
        ),
        model(X, Y),
        target=Target(release=parse_release("24.10")),
    ),
    text("C005", 1, "another model's name", 'name: "n"\n' + model(X, Y), model(X, Y)),
    text(
        "C006",
        1,
        "a platform in the place of a backend",
        model(X, Y, backend="pytorch_libtorch"),
        model(X, Y, backend="python"),
    ),
    text(
        "C010",
        3,
        "channels without height",
        'backend: "python"\nmax_batch_size: 4\n'
        'input { name: "x" data_type: TYPE_UINT8 format: FORMAT_NHWC dims: [ 224, 3 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }\n',
        'backend: "python"\nmax_batch_size: 4\n'
        'input { name: "x" data_type: TYPE_UINT8 format: FORMAT_NHWC dims: [ 224, 224, 3 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }\n',
    ),
    text("C011", 3, "a negative axis", model("x:FP32[-2]", Y), model("x:FP32[-1]", Y)),
    text(
        "C012",
        3,
        "an empty reshape without batching",
        model("x:FP32[1]=[]", Y),
        model("x:FP32[1]=[]", Y, batch=2),
    ),
    text(
        "C012",
        3,
        "a free axis that reshape fixes",
        model("x:FP32[-1,4]=[8,4]", Y),
        model("x:FP32[-1,4]=[-1,2,2]", Y),
    ),
    text("C013", 4, "an input twice", model("x:FP32[4] x:FP32[2]", Y), model(X, Y)),
    text("C015", 2, "a negative batch", model(X, Y, batch=-1), model(X, Y)),
    text(
        "S001",
        5,
        "a cache before a stream",
        model(
            X,
            Y,
            more="response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n",
        ),
        model(X, Y, more="model_transaction_policy { decoupled: true }\n"),
    ),
    text(
        "B001",
        2,
        "no scheduler",
        model(X, Y, batch=16),
        model(X, Y, batch=16, more="dynamic_batching { }\n"),
        severity=INFO,
    ),
    text(
        "B002",
        5,
        "batches of one",
        model(X, Y, batch=1, more="dynamic_batching { }\n"),
        model(X, Y, batch=2, more="dynamic_batching { }\n"),
        severity=INFO,
    ),
    text(
        "B003",
        5,
        "one preferred size above the largest",
        model(X, Y, batch=8, more="dynamic_batching { preferred_batch_size: [ 4, 12 ] }\n"),
        model(X, Y, batch=8, more="dynamic_batching { preferred_batch_size: [ 4, 8 ] }\n"),
    ),
    text(
        "B006",
        5,
        "a default priority that is none",
        model(
            X,
            Y,
            batch=8,
            more="dynamic_batching { priority_levels: 2 default_priority_level: 3 }\n",
        ),
        model(
            X,
            Y,
            batch=8,
            more="dynamic_batching { priority_levels: 2 default_priority_level: 2 }\n",
        ),
    ),
    text(
        "G001",
        5,
        "a GPU on a machine without",
        model(X, Y, more="instance_group [ { count: 2 kind: KIND_GPU } ]\n"),
        model(X, Y, more="instance_group [ { count: 2 kind: KIND_CPU } ]\n"),
        target=Target(gpus=0),
    ),
    text(
        "G002",
        5,
        "the second GPU of one",
        model(X, Y, more="instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }\n"),
        model(X, Y, more="instance_group { kind: KIND_GPU gpus: [ 0 ] }\n"),
        target=Target(gpus=1),
    ),
    text(
        "G003",
        5,
        "GPUs of a CPU",
        model(X, Y, more="instance_group { kind: KIND_CPU gpus: [ 0 ] }\n"),
        model(X, Y, more="instance_group { kind: KIND_CPU }\n"),
    ),
    text(
        "W001",
        5,
        "a warm-up of another shape",
        model(
            X,
            Y,
            more=warm_up("dims: [ 5 ] zero_data: true"),
        ),
        model(
            X,
            Y,
            more=warm_up("dims: [ 4 ] zero_data: true"),
        ),
    ),
    text(
        "W002",
        5,
        "a warm-up file that is not there",
        model(
            X,
            Y,
            more=warm_up('dims: [ 4 ] input_data_file: "first.bin"'),
        ),
        model(X, Y),
    ),
    Case(
        "a version called v2",
        "R002",
        "m",
        1,
        lambda: {"m/config.pbtxt": model(X, Y), "m/v2/model.py": CODE},
        lambda: {"m/config.pbtxt": model(X, Y), "m/2/model.py": CODE},
    ),
    Case(
        "more labels than scores",
        "R004",
        "m/config.pbtxt",
        4,
        lambda: {
            **python(model(X, "y:FP32[2]").replace("[2]", '[2] label_filename: "l.txt"')),
            "m/l.txt": "a\nb\nc\n",
        },
        lambda: {
            **python(model(X, "y:FP32[2]").replace("[2]", '[2] label_filename: "l.txt"')),
            "m/l.txt": "a\nb\n",
        },
        severity=WARNING,
    ),
    onnx(
        "M001",
        3,
        "a fixed batch of 1",
        model(X, Y, batch=8, **ONNX_MODEL),
        identity(shape=(1, 4)),
        (model("x:FP32[1,4]", "y:FP32[1,4]", **ONNX_MODEL), identity(shape=(1, 4))),
    ),
    onnx(
        "M001",
        4,
        "the batch on the second axis",
        model(X, "y:FP32[-1]", batch=8, **ONNX_MODEL),
        batch_on_axis_1(),
        (model("x:FP32[-1,4]", "y:FP32[4,-1]", **ONNX_MODEL), batch_on_axis_1()),
    ),
    onnx(
        "M003",
        3,
        "integers called floats",
        model(X, Y, batch=8, **ONNX_MODEL),
        identity("INT64"),
        (model("x:INT64[4]", "y:INT64[4]", batch=8, **ONNX_MODEL), identity("INT64")),
    ),
    onnx(
        "M005",
        4,
        "a sum over the batch",
        model(X, "y:FP32[1]=[]", batch=8, **ONNX_MODEL),
        scalar_output(),
        (model("x:FP32[-1,4]", "y:FP32[1]", **ONNX_MODEL), scalar_output()),
    ),
    flow(
        "E005",
        5,
        "a step input in capitals",
        ensemble(X, Y, "a X=x -> h=t", "b h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E008",
        2,
        "more rows than a step takes",
        ensemble(X, Y, "a8 x=x -> h=t", "b4 h=t -> y=y", batch=8),
        ensemble(X, Y, "a8 x=x -> h=t", "b4 h=t -> y=y", batch=4),
        CHAIN,
    ),
    flow(
        "E001",
        4,
        "an input for nobody",
        ensemble(f"{X} mask:INT64[4]", Y, "a x=x -> h=t", "b h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E010",
        5,
        "two steps that wait for each other",
        ensemble(X, Y, "two p=x q=s -> y=t", "b h=t -> y=s", "b h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E013",
        5,
        "an optional input for a step that needs it",
        ensemble("x:FP32[4]?", Y, "a x=x -> h=t", "b h=t -> y=y"),
        ensemble("x:FP32[4]?", Y, "maybe x=x -> y=y"),
        CHAIN,
    ),
    flow(
        "E014",
        5,
        "a step without a version",
        ensemble(X, Y, "a@ x=x -> h=t", "b h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E014",
        6,
        "a version that was never there",
        ensemble(X, Y, "a x=x -> h=t", "b@4 h=t -> y=y"),
        ensemble(X, Y, "a x=x -> h=t", "b@1 h=t -> y=y"),
        CHAIN,
    ),
    flow(
        "E006",
        6,
        "half for float",
        ensemble(X, Y, "a x=x -> h=t", "half h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E016",
        6,
        "a step in other letters",
        ensemble(X, Y, "a x=x -> h=t", "B h=t -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E018",
        5,
        "an ensemble of nothing",
        ensemble(X, Y),
        GOOD,
        CHAIN,
    ),
    flow(
        "E020",
        5,
        "an ensemble that calls itself",
        ensemble(X, Y, "flow x=x -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E009",
        6,
        "two writers",
        ensemble(X, Y, "a x=x -> h=y", "maybe x=x -> y=y"),
        GOOD,
        CHAIN,
    ),
    flow(
        "E011",
        6,
        "a stream joined with its question",
        ensemble(X, Y, "stream x=x -> h=t", "two p=t q=x -> y=y"),
        ensemble(X, Y, "stream x=x -> h=t", "two p=t q=t -> y=y"),
        CHAIN,
    ),
    flow(
        "E012",
        5,
        "an ensemble with a backend",
        ensemble(X, Y, "a x=x -> h=t", "b h=t -> y=y", more='backend: "python"\n'),
        GOOD,
        CHAIN,
    ),
    caller(
        "an answer used unseen",
        12,
        "L001",
        bls("worker", "scores").replace(
            "    if answer.has_error():\n"
            "        raise pb.TritonModelException(answer.error().message())\n",
            "",
        ),
        bls("worker", "scores"),
    ),
    caller(
        "a call that nobody waits for",
        11,
        "L002",
        bls("worker", "scores", ".async_exec()"),
        bls("worker", "scores")
        .replace("answer = pb", "answer = await pb")
        .replace(".exec()", ".async_exec()"),
    ),
    caller(
        "a model that calls itself",
        11,
        "L003",
        bls("caller", "y").replace('Tensor("q"', 'Tensor("x"'),
        bls("worker", "scores"),
    ),
    caller(
        "a model that is not there",
        11,
        "L004",
        bls("workr", "scores"),
        bls("worker", "scores"),
    ),
    caller(
        "an output that is not there",
        11,
        "L004",
        bls("worker", "logits"),
        bls("worker", "scores"),
    ),
    caller(
        "a stream asked once",
        11,
        "L005",
        bls("teller", "scores"),
        bls("worker", "scores"),
    ),
    caller(
        "one call after the other",
        11,
        "L006",
        bls("worker", "scores"),
        "return await asyncio.gather(*[])",
        severity=INFO,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_mistake_is_found_and_what_mends_it_is_silent(case: Case, tmp_path: Path) -> None:
    def findings(files: Files, folder: str) -> Sequence[tuple[str, int, str, Severity, str]]:
        root = write(tmp_path / folder, files)
        found = check(root, target=case.target)
        return [
            (str(Path(f.path).relative_to(root)), f.line, f.code, f.severity, f.message)
            for f in found
        ]

    wrong = findings(case.wrong(), "wrong")
    assert (case.path, case.line, case.code, case.severity) in [row[:4] for row in wrong], wrong
    right = findings(case.right(), "right")
    assert not [row for row in right if row[3] is ERROR or row[2] == case.code], right
