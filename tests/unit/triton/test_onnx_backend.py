"""The rules of the C++ ONNX backend, without a model: what loads, and what is filled in."""

from __future__ import annotations

import ast
import sys
from typing import Any

import pytest

from mmctl.triton import onnx_backend
from mmctl.triton.onnx_backend import (
    Config,
    LoadError,
    Tensor,
    check_entries,
    check_model,
    complete,
    hash_order,
    model_tensor,
    read_config,
    read_default_max_batch,
    read_settings,
)

X = Tensor("x", "TYPE_FP32", (-1, 4))
Y = Tensor("y", "TYPE_FP32", (-1, 4))


def config(**fields: Any) -> Config:
    return read_config(fields, "m")


def port(name: str, *dims: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": "TYPE_FP32", "dims": list(dims), **more}


# ---------------------------------------------------------------- reading


def test_protobuf_writes_64_bit_numbers_as_text_and_leaves_defaults_out() -> None:
    read = config(
        input=[{"name": "x", "data_type": "TYPE_FP32", "dims": ["1"], "reshape": {}}],
        instance_group=[{"kind": "KIND_CPU"}],
    )
    assert read.inputs == (Tensor("x", "TYPE_FP32", ()),)
    assert (read.model, read.max_batch, read.filename, read.instances) == ("m", 0, "model.onnx", 1)


def test_sequence_controls_are_looked_for_in_the_order_of_the_backend() -> None:
    kinds = ("CORRID", "READY", "END", "START")
    entries = [
        {"name": kind, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", "fp32_false_true": [0, 1]}]}
        for kind in kinds
    ]
    entries[0]["control"] = [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}]
    read = config(sequence_batching={"control_input": entries})
    assert [tensor.name for tensor in read.controls] == ["START", "END", "READY", "CORRID"]
    assert [tensor.dtype for tensor in read.controls][2:] == ["TYPE_FP32", "TYPE_UINT64"]


@pytest.mark.parametrize(
    ("kind", "shape", "tensor"),
    [
        ("tensor(float)", ["N", 4, None], Tensor("t", "TYPE_FP32", (-1, 4, -1), axis="N")),
        ("tensor(string)", [None, 0], Tensor("t", "TYPE_STRING", (-1, 0))),
        ("tensor(bfloat16)", [], Tensor("t", "TYPE_INVALID", ())),
        ("seq(tensor(float))", [], Tensor("t", "ONNX_TYPE_SEQUENCE", ())),
        ("map(int64,tensor(float))", [], Tensor("t", "ONNX_TYPE_MAP", ())),
        ("optional(tensor(float))", [], Tensor("t", "ONNX_TYPE_UNKNOWN", ())),
    ],
)
def test_onnx_runtimes_words(kind: str, shape: list[int | str | None], tensor: Tensor) -> None:
    assert model_tensor("t", kind, shape) == tensor


# ---------------------------------------------------------------- parameters


def test_the_execution_mode_is_read_before_the_threads() -> None:
    given = {"intra_op_thread_count": "x", "execution_mode": "2"}
    parameters = {key: {"string_value": value} for key, value in given.items()}
    with pytest.raises(LoadError, match="execution_mode are 0 or 1 but got 2"):
        read_settings(config(parameters=parameters))


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        pytest.param([], 4, id="not given"),
        pytest.param(["--backend-config=default-max-batch-size=16"], 16, id="for all backends"),
        pytest.param(["--backend-config", "default-max-batch-size=16"], 16, id="in two words"),
        pytest.param(
            [
                "--backend-config=onnxruntime,default-max-batch-size=2",
                "--backend-config=default-max-batch-size=16",
            ],
            2,
            id="this backend's own goes first",
        ),
        pytest.param(
            ["--backend-config=python,default-max-batch-size=16"], 4, id="another backend's"
        ),
        pytest.param(["--backend-config=default-max-batch-size=-1"], -1, id="negative"),
        pytest.param(["--backend-config"], 4, id="cut off"),
    ],
)
def test_the_default_batch_size_of_a_server(arguments: list[str], size: int) -> None:
    assert read_default_max_batch(["tritonserver", *arguments, "--http-port=1"]) == size


def test_a_default_batch_size_that_is_no_number_fails_every_load() -> None:
    with pytest.raises(LoadError, match="failed to convert 'abc' to integral number"):
        read_default_max_batch(["--backend-config=onnxruntime,default-max-batch-size=abc"])


# ---------------------------------------------------------------- completion


def test_nothing_is_completed_where_inputs_and_outputs_are_given() -> None:
    given = config(input=[port("x", 4)], output=[port("y", 4)])
    completion = complete(given, [X], [Y])
    assert completion.changes == {}
    assert completion.log == (
        (
            "I",
            "skipping model configuration auto-complete for 'm': "
            "inputs and outputs already specified",
        ),
    )


@pytest.mark.parametrize(
    ("fields", "default", "changed"),
    [
        pytest.param({}, 4, {"max_batch_size": 4, "dynamic_batching": {}}, id="nothing said"),
        pytest.param({"max_batch_size": 8}, 4, {"dynamic_batching": {}}, id="a size said"),
        pytest.param({"max_batch_size": 1}, 4, {}, id="one row needs no batching"),
        pytest.param({"dynamic_batching": {}}, 4, {"max_batch_size": 4}, id="batching said"),
        pytest.param({"sequence_batching": {}}, 4, {"max_batch_size": 4}, id="sequences"),
        pytest.param({}, 1, {"max_batch_size": 1}, id="the server's default is one"),
        pytest.param({}, -3, {"max_batch_size": 0}, id="the server's default is negative"),
    ],
)
def test_what_is_said_of_batching(
    fields: dict[str, Any], default: int, changed: dict[str, Any]
) -> None:
    changes = dict(complete(config(**fields), [X], [Y], default).changes)
    dims = [-1, 4] if changed.get("max_batch_size") == 0 else [4]
    assert changes.pop("input") == [port("x", *dims)]
    assert changes.pop("output") == [port("y", *dims)]
    assert changes == changed


def test_only_an_empty_section_is_filled() -> None:
    assert "input" not in complete(config(input=[{"name": "x"}]), [X], [Y]).changes
    assert "output" not in complete(config(output=[{"name": "y"}]), [X], [Y]).changes
    counted = config(batch_input=[{"target_name": ["x"]}])
    assert "input" not in complete(counted, [X], [Y]).changes


def test_a_model_that_cannot_batch_keeps_its_whole_shape() -> None:
    scalar = Tensor("s", "TYPE_FP32", ())
    assert complete(config(), [X], [scalar]).changes == {
        "input": [port("x", -1, 4)],
        "output": [port("s", 1)],
    }
    with pytest.raises(LoadError, match="autofill failed for model 'm': model does not support"):
        complete(config(max_batch_size=1), [X], [scalar])


def test_one_value_a_row_is_reshaped_away() -> None:
    row = Tensor("x", "TYPE_FP32", (-1,))
    assert complete(config(), [row], [Y]).changes["input"] == [port("x", 1, reshape={"shape": []})]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"name": "x"}, "model input 'x' must specify 'data_type' for m"),
        ({"name": "x", "data_type": "TYPE_FP32"}, "model input 'x' must specify 'dims' for m"),
        (
            port("x", 4, 0),
            "model input 'x' dimension must be integer >= 1, or -1 to indicate a variable-size "
            "dimension for m",
        ),
    ],
)
def test_tritons_own_checks_of_entries(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(LoadError, match=f"^{text}$"):
        check_entries({"input": [entry]}, "m")


def test_thirty_names_come_in_the_order_of_a_hash_table() -> None:
    """That of a `std::unordered_map` compiled with GCC's libstdc++: the table grows twice."""
    order = [
        12, 28, 11, 14, 19, 24, 6, 3, 5, 20, 8, 15, 9, 2, 27, 13, 16, 1, 4, 7,
        10, 0, 25, 21, 17, 29, 22, 18, 23, 26,
    ]  # fmt: skip
    names = dict.fromkeys(f"input_{number}" for number in range(30))
    assert hash_order(names) == [f"input_{number}" for number in order]


# ---------------------------------------------------------------- checks that samples do not reach


def refusal(given: Config, **model: list[Tensor]) -> str:
    ports = {"inputs": [X], "overridable": [], "outputs": [Y], **model}
    with pytest.raises(LoadError) as error:
        check_model(given, **ports)
    return f"{error.value.status}: {error.value}"


def test_a_control_is_no_initializer() -> None:
    control = {"name": "s", "control": [{"int32_false_true": [0, 1]}]}
    given = config(sequence_batching={"control_input": [control]})
    assert refusal(given, overridable=[Tensor("s", "TYPE_INT32", (1,))]) == (
        "Internal: configuration specified sequence control 's', "
        "but model does not provide that input"
    )


def test_batch_inputs_and_states_count_as_inputs() -> None:
    given = config(
        input=[port("x", 4)],
        batch_input=[{"target_name": ["n"]}],
        sequence_batching={"state": [{"input_name": "s"}]},
    )
    assert "configuration expects 3 inputs, model provides 1" in refusal(given)


def test_a_batch_output_may_have_another_shape() -> None:
    given = config(
        max_batch_size=4,
        input=[port("x", 4)],
        output=[port("y", 9)],
        batch_output=[{"target_name": ["y"]}],
    )
    check_model(given, [X], [], [Y])


def test_an_output_that_is_no_tensor_is_refused_though_nobody_asks_for_it() -> None:
    given = config(max_batch_size=4, input=[port("x", 4)], output=[port("y", 4)])
    listed = Tensor("s", "ONNX_TYPE_SEQUENCE", ())
    assert refusal(given, outputs=[Y, listed]) == (
        "Unsupported: Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 's', "
        "expected 'ONNX_TYPE_TENSOR'."
    )


def test_a_type_that_triton_lacks_has_no_name() -> None:
    given = config(max_batch_size=4, input=[port("x", 4)], output=[port("y", 4)])
    odd = Tensor("x", "TYPE_INVALID", (-1, 4))
    assert refusal(given, inputs=[odd]).endswith("model provides TYPE_<invalid>")


# ---------------------------------------------------------------- shipping


def test_the_file_is_python_3_10_and_stands_alone() -> None:
    file = onnx_backend.__file__
    with open(file) as source:
        tree = ast.parse(source.read(), feature_version=(3, 10))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert {str(name).split(".", maxsplit=1)[0] for name in imported} <= sys.stdlib_module_names
