"""ONNX files joined to one, on graphs small enough to see what happens. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_samples import Ports, first_row, onnx_model, rows_together

from mmctl.errors import Refused
from mmctl.exporters.base import Exported
from mmctl.exporters.merge import merge_files, prove_merged
from mmctl.exporters.samples import Drawn
from mmctl.tensors import Array
from mmctl.triton.recipe import MergeMember, MergeRecipe, Port, recipe_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

A_THEN_B = {"a": {"x": ("", "x")}, "b": {"x": ("a", "y")}}
SHOW_B = {"y": ("b", "y")}


def times(factor: float, *, axis: str = "N") -> bytes:
    return onnx_model(
        {"x": ("FLOAT", [axis, "len"])},
        {"y": ("FLOAT", [axis, "len"])},
        [("Mul", ["x", "f"], ["y"], {})],
        {"f": np.float32([factor])},
    )


def plus() -> bytes:
    """y = p + q, and the unread z = -p."""
    ports = {name: ("FLOAT", ["N", "len"]) for name in ("p", "q", "y", "z")}
    return onnx_model(
        {name: ports[name] for name in "pq"},
        {name: ports[name] for name in "yz"},
        [("Add", ["p", "q"], ["y"], {}), ("Neg", ["p"], ["z"], {})],
    )


def two_steps() -> bytes:
    return onnx_model(
        {"x": ("FLOAT", ["N", "len"])},
        {"y": ("FLOAT", ["N", "len"])},
        [("Neg", ["x"], ["inner"], {}), ("Neg", ["inner"], ["y"], {})],
    )


def branching() -> bytes:
    """y = x * f in the body of an If, where f stands outside of it."""

    def body(operator: str) -> Any:
        value = onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)
        node = onnx.helper.make_node(operator, ["x", "f"], ["r"])
        return onnx.helper.make_graph([node], "body", [], [value])

    branches = {"then_branch": body("Mul"), "else_branch": body("Add")}
    return onnx_model(
        {"x": ("FLOAT", ["N", "len"])},
        {"y": ("FLOAT", ["N", "len"])},
        [("If", ["yes"], ["y"], branches)],
        {"yes": np.bool_(True), "f": np.float32([3])},
    )


def of_opset(graph: bytes, opset: int, ir: int) -> bytes:
    model = onnx.load_from_string(graph)
    model.opset_import[0].version = opset
    model.ir_version = ir
    return bytes(model.SerializeToString())


def recipe(
    inputs: Mapping[str, Mapping[str, Port]] = A_THEN_B, outputs: Mapping[str, Port] = SHOW_B
) -> MergeRecipe:
    members = tuple(MergeMember(name, name, wires) for name, wires in inputs.items())
    return MergeRecipe(members, outputs, 1e-5)


def files(folder: Path, *graphs: bytes) -> dict[str, Path]:
    paths = {name: folder / f"{name}.onnx" for name, _ in zip("abc", graphs, strict=False)}
    for path, graph in zip(paths.values(), graphs, strict=True):
        path.write_bytes(graph)
    return paths


def merged(folder: Path, wanted: MergeRecipe, *graphs: bytes) -> Exported:
    drawn = {name: Drawn() for name in wanted.inputs}
    return merge_files(wanted, files(folder, *graphs), drawn, folder)


def answer(folder: Path, **arrays: Sequence[Sequence[float]]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    given = {name: np.float32(values) for name, values in arrays.items()}
    return dict(zip(names, session.run(names, given), strict=True))


def names(exported: Exported) -> list[str]:
    return [str(spec) for spec in (*exported.signature.inputs, *exported.signature.outputs)]


def test_a_chain_gives_what_its_members_give_in_turn(tmp_path: Path) -> None:
    exported = merged(tmp_path, recipe(), times(3), times(5))
    assert names(exported) == ["x: fp32[-1]", "y: fp32[-1]"]
    assert answer(tmp_path, x=[[1, 2]])["y"].tolist() == [[15, 30]]
    parity, law = exported.evidence[1:]
    assert (parity["gate"], parity["max_difference"], parity["batches"]) == ("parity", 0, [1, 2, 3])
    assert (law["gate"], law["max_difference"]) == ("batch law", 0)


def test_what_others_read_stays_an_output_and_the_rest_goes(tmp_path: Path) -> None:
    wanted = recipe(
        {"a": {"x": ("", "x")}, "b": {"p": ("a", "y"), "q": ("", "x")}},
        {"sum": ("b", "y"), "a__y": ("a", "y")},
    )
    exported = merged(tmp_path, wanted, times(3), plus())
    assert names(exported) == ["x: fp32[-1]", "sum: fp32[-1]", "a__y: fp32[-1]"]
    found = answer(tmp_path, x=[[1, 2]])
    assert (found["sum"].tolist(), found["a__y"].tolist()) == ([[4, 8]], [[3, 6]])


def test_members_that_only_a_third_one_joins_are_merged_too(tmp_path: Path) -> None:
    wanted = recipe(
        {"a": {"x": ("", "u")}, "b": {"x": ("", "v")}, "c": {"p": ("a", "y"), "q": ("b", "y")}},
        {"y": ("c", "y")},
    )
    assert names(merged(tmp_path, wanted, times(3), times(5), plus()))[:2] == [
        "u: fp32[-1]",
        "v: fp32[-1]",
    ]
    assert answer(tmp_path, u=[[1]], v=[[10]])["y"].tolist() == [[53]]


def test_one_model_may_be_there_twice(tmp_path: Path) -> None:
    wanted = recipe(
        {"a": {"x": ("", "x")}, "b": {"x": ("a", "y")}, "c": {"x": ("b", "y")}}, {"y": ("c", "y")}
    )
    merged(tmp_path, wanted, times(3), times(3), times(3))
    assert answer(tmp_path, x=[[1]])["y"].tolist() == [[27]]


def test_names_reach_into_branches_that_read_constants_outside(tmp_path: Path) -> None:
    merged(tmp_path, recipe(), branching(), branching())
    assert answer(tmp_path, x=[[2]])["y"].tolist() == [[18]]


def test_batch_axes_of_other_names_are_one_axis(tmp_path: Path) -> None:
    merged(tmp_path, recipe(), times(3), times(5, axis="rows"))
    values = onnx.load(tmp_path / "model.onnx").graph
    axes = {v.type.tensor_type.shape.dim[0].dim_param for v in (*values.input, *values.output)}
    assert axes == {"batch"}


def test_shapes_of_inner_tensors_stay(tmp_path: Path) -> None:
    """ONNX Runtime fuses other operators without them."""
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(two_steps()))
    graph = bytes(inferred.SerializeToString())
    merged(tmp_path, recipe(), graph, graph)
    values = {v.name: v for v in onnx.load(tmp_path / "model.onnx").graph.value_info}
    dims = values["b/inner"].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in dims] == ["batch", "b/len"]


def test_the_older_opset_and_format_are_raised_to_the_newer(tmp_path: Path) -> None:
    merged(tmp_path, recipe(), of_opset(times(3), 13, 7), times(5))
    model = onnx.load(tmp_path / "model.onnx")
    assert (model.ir_version, [o.version for o in model.opset_import]) == (8, [17])
    assert answer(tmp_path, x=[[1]])["y"].tolist() == [[15]]


def test_an_opset_that_cannot_be_raised_is_refused(tmp_path: Path) -> None:
    ports: Ports = {"x": ("FLOAT", ["N", 4])}
    removed = onnx_model(ports, {"y": ports["x"]}, [("Affine", ["x"], ["y"], {"alpha": 2.0})])
    with pytest.raises(Refused, match="`a` has opset 9, and onnx cannot convert it to the 17"):
        merged(tmp_path, recipe(), of_opset(removed, 9, 4), times(5))


def test_other_operators_than_onnx_own_must_have_one_version(tmp_path: Path) -> None:
    graphs = []
    for version in (2, 3):
        model = onnx.load_from_string(times(3))
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", version))
        graphs.append(bytes(model.SerializeToString()))
    with pytest.raises(Refused, match="`b` cannot be joined: Can't merge two models"):
        merged(tmp_path, recipe(), *graphs)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        pytest.param(rows_together, "rows change with their batch: `y` differs by", id="together"),
        pytest.param(first_row, "its first axis is not the batch", id="first row"),
    ],
)
def test_a_merged_model_must_obey_the_batch_law(first: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=rf"`a` and `b` cannot be merged: .*{message}"):
        merged(tmp_path, recipe(), first(), times(5))


def test_a_wrong_merge_is_refused_with_the_number(tmp_path: Path) -> None:
    wanted = recipe()
    merged(tmp_path, wanted, times(3), times(5.001))
    members = files(tmp_path, times(3), times(5))
    with pytest.raises(
        Refused, match=r"batch of 1 .*`y` differs from its source by 0\.0002 of its scale, .* 1e-05"
    ):
        prove_merged(tmp_path / "model.onnx", wanted, members, {"x": Drawn()})


def test_a_recipe_survives_being_json() -> None:
    wanted = recipe()
    assert recipe_of(wanted.wiring, wanted.tolerance) == wanted
