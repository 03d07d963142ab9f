"""ONNX files, taken in: names, shapes and proofs. Needs onnx and onnxruntime, no torch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import export_here, write_model
from onnx_samples import custom, identity, onnx_model

from mmctl.errors import InputError, MmctlError, Refused
from mmctl.exporters.base import Exported
from mmctl.files import sha256_file

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def export(root: Path, graph: bytes, source: str = "onnx: net.onnx", more: str = "") -> Exported:
    space = write_model(root, "net", f"source: {{{source}}}\n{more}", net_onnx=graph)
    return export_here(space, "net", root / "out")


def names(exported: Exported) -> list[str]:
    signature = exported.signature
    return [str(spec) for spec in (*signature.inputs, *signature.outputs)]


def run(root: Path, **inputs: Any) -> dict[str, np.ndarray]:
    """The served file's answer."""
    path = root / "out" / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, inputs), strict=True))


def test_the_signature_is_what_onnx_runtime_will_take(workspace: Path) -> None:
    graph = onnx_model(
        {"ids": ("INT64", ["N", "seq"]), "scale": ("FLOAT", ["N", 1])},
        {"y": ("FLOAT", ["N", "seq"])},
        [("Cast", ["ids"], ["f"], {"to": 1}), ("Mul", ["f", "scale"], ["y"], {})],
    )
    exported = export(workspace, graph)
    assert names(exported) == ["ids: int64[-1]", "scale: fp32", "y: fp32[-1]"]
    assert [gate["gate"] for gate in exported.evidence] == [
        "onnx checker",
        "parity",
        "batch law",
    ]
    assert exported.evidence[1]["sizes"] == [{"seq": 16}, {"seq": 8}, {"seq": 32}]


def test_rename_changes_the_file_itself(workspace: Path) -> None:
    graph = onnx_model(
        {"in:0": ("FLOAT", ["N", 4])},
        {"4195": ("FLOAT", ["N", 4])},
        [("Relu", ["in:0"], ["mid"], {}), ("Neg", ["mid"], ["4195"], {})],
    )
    exported = export(workspace, graph, more='rename: {"in:0": pixels, "4195": mid_2}\n')
    assert names(exported) == ["pixels: fp32[4]", "mid_2: fp32[4]"]
    x = np.array([[1, -1, 2, -2]], dtype=np.float32)
    assert run(workspace, pixels=x)["mid_2"].tolist() == [[-1, 0, -2, 0]]


def test_names_may_be_swapped(workspace: Path) -> None:
    graph = onnx_model(
        {"a": ("FLOAT", ["N", 2])},
        {"b": ("FLOAT", ["N", 2])},
        [("Neg", ["a"], ["b"], {})],
    )
    assert names(export(workspace, graph, more="rename: {a: b, b: a}\n")) == [
        "b: fp32[2]",
        "a: fp32[2]",
    ]


def test_rename_reaches_into_branches(workspace: Path) -> None:
    def branch(operator: str) -> Any:
        value = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)
        node = onnx.helper.make_node(operator, ["x"], ["z"])
        return onnx.helper.make_graph([node], operator, [], [value])

    graph = onnx_model(
        {"x": ("FLOAT", ["N", 2])},
        {"y": ("FLOAT", ["N", 2])},
        [
            (
                "If",
                ["always"],
                ["y"],
                {"then_branch": branch("Neg"), "else_branch": branch("Abs")},
            )
        ],
        {"always": np.array(True)},
    )
    export(workspace, graph, more="rename: {x: pixels}\n")
    assert run(workspace, pixels=np.ones((1, 2), np.float32))["y"].tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ("{z: pixels}", "`rename` names `z`, which is no input or output"),
        ("{x: y}", "`rename` gives a name twice: `y`"),
        ("{x: same, y: same}", "`rename` gives a name twice: `same`"),
    ],
)
def test_a_rename_that_cannot_be(workspace: Path, rename: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        export(workspace, identity(), more=f"rename: {rename}\n")


def test_one_value_a_row_gets_an_axis_of_its_own(workspace: Path) -> None:
    graph = onnx_model(
        {"a": ("FLOAT", ["N"]), "b": ("FLOAT", ["N"])},
        {"sum": ("FLOAT", ["N"]), "same": ("BOOL", ["N"])},
        [("Add", ["a", "b"], ["sum"], {}), ("Equal", ["a", "b"], ["same"], {})],
    )
    assert names(export(workspace, graph)) == ["a: fp32", "b: fp32", "sum: fp32", "same: bool"]
    column = np.array([[1], [2]], dtype=np.float32)
    answer = run(workspace, a=column, b=column[::-1])
    assert answer["sum"].tolist() == [[3], [3]]
    assert answer["same"].tolist() == [[False], [False]]


def test_without_a_batch_axis_every_axis_counts(workspace: Path) -> None:
    graph = onnx_model(
        {"x": ("FLOAT", ["n", 4]), "k": ("FLOAT", [])},
        {"y": ("FLOAT", ["n", 4]), "total": ("FLOAT", [])},
        [("Mul", ["x", "k"], ["y"], {}), ("ReduceSum", ["y"], ["total"], {"keepdims": 0})],
    )
    exported = export(workspace, graph, more="batching: none\n")
    assert names(exported) == ["x: fp32[-1,4]", "k: fp32", "y: fp32[-1,4]", "total: fp32"]
    assert exported.signature.max_batch == 0
    answer = run(workspace, x=np.ones((2, 4), np.float32), k=np.array([3], np.float32))
    assert answer["total"].tolist() == [24]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        pytest.param(
            identity(shape=[1, 4]),
            "input `x` has `1` as first axis, so it cannot carry a batch",
            id="fixed batch",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4]), "k": ("FLOAT", [])},
                {"y": ("FLOAT", ["N", 4])},
                [("Mul", ["x", "k"], ["y"], {})],
            ),
            "input `k` has no axis, so it cannot carry a batch",
            id="a scalar beside a batch",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4])},
                {"y": ("FLOAT", ["N", 4])},
                [
                    ("ReduceMean", ["x"], ["mean"], {"axes": [0]}),
                    ("Sub", ["x", "mean"], ["y"], {}),
                ],
            ),
            r"rows change with their batch: `y` differs by \d\S* of its scale",
            id="the mean of the batch",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4])},
                {"y": ("FLOAT", ["N", 4])},
                [("Add", ["x", "two"], ["y"], {})],
                {"two": np.ones((2, 4), np.float32)},
            ),
            r"output `y` has shape \[2, 4\] for a batch of 1",
            id="a batch constant in the graph",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4])},
                {"y": ("FLOAT", [1, 4])},
                [("ReduceMax", ["x"], ["y"], {"axes": [0]})],
            ),
            r"output `y` has shape \[1, 4\] for a batch of 2",
            id="one row for the whole batch",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4])},
                {"y": ("FLOAT", ["N", 4])},
                [
                    ("RandomNormalLike", ["x"], ["noise"], {}),
                    ("Add", ["x", "noise"], ["y"], {}),
                ],
            ),
            "the source is not repeatable",
            id="a random graph",
        ),
    ],
)
def test_what_does_not_batch_is_refused(workspace: Path, graph: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        export(workspace, graph)


def test_what_does_not_batch_is_accepted_without_batching(workspace: Path) -> None:
    assert names(export(workspace, identity(shape=[1, 4]), more="batching: none\n")) == [
        "x: fp32[1,4]",
        "y: fp32[1,4]",
    ]


@pytest.mark.parametrize(
    ("graph", "kind", "said"),
    [
        pytest.param(b"not a model", InputError, "cannot load net.onnx", id="no ONNX"),
        pytest.param(identity()[:-20], InputError, "cannot load net.onnx", id="cut off"),
        pytest.param(
            onnx_model(
                {"in:0": ("FLOAT", ["N", 4])},
                {"out/é": ("FLOAT", ["N", 4])},
                [("Identity", ["in:0"], ["out/é"], {})],
            ),
            InputError,
            "tensor names that are no identifiers: `in:0`, `out/é`",
            id="names that are none",
        ),
        pytest.param(identity(shape=["N", 0]), InputError, "an axis of length 0", id="empty axis"),
        pytest.param(
            custom(
                {"x": ("BFLOAT16", ["N", 4])},
                {"y": ("BFLOAT16", ["N", 4])},
                ("Identity", ["x"], ["y"], {}),
            )(),
            InputError,
            r"`x` is a tensor\(bfloat16\), which Triton's ONNX Runtime backend does not serve",
            id="a type that Triton does not serve",
        ),
        pytest.param(
            onnx_model(
                {"x": ("FLOAT", ["N", 4])},
                {"y": ("INT64", ["N", 4])},
                [("Identity", ["x"], ["y"], {})],
            ),
            InputError,
            r"ONNX Runtime [\d.]+ cannot load net.onnx: Load model from \S+ failed:Type Error",
            id="a type error in the graph",
        ),
    ],
)
def test_a_file_that_cannot_be_served(
    workspace: Path, graph: bytes, kind: type[MmctlError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        export(workspace, graph)


def test_examples_say_what_ids_are_valid(workspace: Path) -> None:
    graph = onnx_model(
        {"ids": ("INT64", ["N", "seq"])},
        {"y": ("FLOAT", ["N", "seq", 2])},
        [("Gather", ["table", "shifted"], ["y"], {}), ("Sub", ["ids", "ten"], ["shifted"], {})][
            ::-1
        ],
        {"table": np.eye(3, 2, dtype=np.float32), "ten": np.array(10)},
    )
    with pytest.raises(InputError, match="cannot run its own example inputs"):
        export(workspace, graph)
    with pytest.raises(InputError, match="`examples` names `idz`, which is no input"):
        export(workspace, graph, "onnx: net.onnx, examples: {idz: {high: 3}}")
    examples = "examples: {ids: {shape: [6], low: 10, high: 13}}"
    exported = export(workspace, graph, f"onnx: net.onnx, {examples}")
    assert exported.evidence[1]["sizes"] == [{"seq": 6}, {"seq": 3}, {"seq": 12}]


def test_weights_in_a_second_file_come_into_the_one(workspace: Path) -> None:
    space = write_model(workspace, "net", "source: {onnx: net.onnx}\n")
    graph = onnx.load_from_string(
        onnx_model(
            {"x": ("FLOAT", ["N", 4])},
            {"y": ("FLOAT", ["N", 4])},
            [("Add", ["x", "w"], ["y"], {})],
            {"w": np.arange(4, dtype=np.float32)},
        )
    )
    path = space.models / "net" / "net.onnx"
    onnx.save(graph, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    export_here(space, "net", workspace / "out")
    assert run(workspace, x=np.zeros((1, 4), np.float32))["y"].tolist() == [[0, 1, 2, 3]]
    (path.parent / "w.bin").unlink()
    path.touch()
    with pytest.raises(InputError, match=r"net.onnx"):
        export_here(space, "net", workspace / "out")


def test_a_declared_hash_is_verified(workspace: Path) -> None:
    graph = identity()
    with pytest.raises(InputError, match=r"`net.onnx` has sha256 [0-9a-f]{64}, model.yaml says 0"):
        export(workspace, graph, f"onnx: net.onnx, sha256: {'0' * 64}")
    right = sha256_file(workspace / "model_repository" / "net" / "net.onnx")
    assert export(workspace, graph, f"onnx: net.onnx, sha256: {right}")


@pytest.mark.parametrize(
    ("case", "model", "said"),
    [
        ("031_declared_batch_contradicted_by_graph", "pose", "the source fails with a batch of 2"),
        ("032_batch_constant_hidden_in_graph", "gru", "the source fails with a batch of 2"),
    ],
)
def test_known_cases_of_hidden_batches(
    workspace: Path, shared_dir: Path, case: str, model: str, said: str
) -> None:
    file = shared_dir / "cases" / case / "model_repository" / model / "1" / "model.onnx"
    with pytest.raises(Refused, match=said):
        export(workspace, file.read_bytes())
