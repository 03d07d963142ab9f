"""Models and configs that misfit, and the words in which the ONNX backend refuses each."""

from __future__ import annotations

from functools import partial
from typing import Any

from onnx_samples import (
    Sample,
    X,
    controlled,
    identity,
    onnx_model,
    overridable,
    parameters,
    port,
    sequence,
)


def _sequence_output() -> bytes:
    from onnx import TensorProto, helper, load_model_from_string

    model = load_model_from_string(identity())
    model.graph.node.append(helper.make_node("SplitToSequence", ["x"], ["s"], axis=0))
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model.graph.output.append(sequence)
    return bytes(model.SerializeToString())


def _scalar_output() -> bytes:
    return onnx_model(
        {"x": ("FLOAT", ["N", 4])},
        {"total": ("FLOAT", [])},
        [("ReduceSum", ["x"], ["total"], {"keepdims": 0})],
    )


def flat(*counts: str) -> bytes:
    """Takes the rows of all requests as one vector, and maybe how many there are of each."""
    return onnx_model(
        {"x": ("FLOAT", ["K"]), **{name: ("INT32", ["N"]) for name in counts}},
        {"y": ("FLOAT", ["K"])},
        [("Identity", ["x"], ["y"], {})],
    )


def refused(text: str, **sample: Any) -> tuple[Sample, str]:
    """A sample called M and the words of the C++ backend for it; {version} is its folder."""
    return Sample("M", **sample), text


RAGGED = port("x", "FP32", -1, allow_ragged_batch=True)
STATE = {"input_name": "x", "output_name": "y", "data_type": "TYPE_FP32", "dims": [4]}
INVALID = "Invalid argument: unable to load model 'M', "
ELSEWHERE = " (NVIDIA's container serves this configuration)"
REFUSED = "Unsupported: unable to load model 'M', not supported on the embedded server: "

LOAD_ERRORS: dict[str, tuple[Sample, str]] = {
    # parameters
    "threads are no number": refused(
        "Invalid argument: failed to convert 'abc' to integral number",
        more=parameters(intra_op_thread_count="abc"),
    ),
    "threads are empty": refused(
        "Invalid argument: failed to convert '' to integral number",
        more=parameters(inter_op_thread_count=""),
    ),
    "threads are too many for an int": refused(
        "Invalid argument: failed to convert '99999999999' to integral number",
        more=parameters(intra_op_thread_count="99999999999"),
    ),
    "execution mode is unknown": refused(
        "Invalid argument: Invalid configuration value provided. Expected values for  "
        "execution_mode are 0 or 1 but got 2 .",
        more=parameters(execution_mode="2"),
    ),
    "arena is neither on nor off": refused(
        "Invalid argument: failed to convert 'yes' to boolean",
        more=parameters(enable_mem_arena="yes"),
    ),
    "custom operators are missing": refused(
        "onnx runtime error 1: Failed to load library /no/such/lib.so with error: "
        "/no/such/lib.so: cannot open shared object file: No such file or directory",
        more={"model_operations": {"op_library_filename": ["/no/such/lib.so"]}},
    ),
    "accelerator exists nowhere": refused(
        "Invalid argument: unknown Execution Accelerator 'warp' is requested",
        more={
            "optimization": {
                "execution_accelerators": {"cpu_execution_accelerator": [{"name": "warp"}]}
            }
        },
    ),
    # file
    "file is missing": refused("Internal: failed to stat file {version}/model.onnx", graph=None),
    "folder without model.onnx": refused(
        "Unavailable: unable to find '{version}/./model.onnx' for model instance 'M'",
        graph=None,
        more={"default_model_filename": "."},
    ),
    "file is not ONNX": refused(
        "onnx runtime error 7: Load model from {version}/model.onnx failed:"
        "Protobuf parsing failed.",
        graph=lambda: b"not a model",
    ),
    "file is empty": refused(
        "onnx runtime error 2: Load model from {version}/model.onnx failed:"
        "No graph was found in the protobuf.",
        graph=bytes,
    ),
    "output is a sequence": refused(
        "Unsupported: Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 's', "
        "expected 'ONNX_TYPE_TENSOR'.",
        graph=_sequence_output,
    ),
    # sequence controls
    "control is no input": refused(
        "Internal: configuration specified sequence control 'START', "
        "but model does not provide that input",
        more=sequence("int32"),
    ),
    "control has another shape": refused(
        f"{INVALID}sequence control 'START' in model has dims [2] but dims [1] is expected",
        graph=controlled(2),
        more=sequence("int32"),
    ),
    "control has another type": refused(
        f"{INVALID}sequence control 'START', the model expects data-type INT32 "
        "but the model configuration specifies data-type TYPE_FP32",
        graph=controlled(1),
        more=sequence("fp32"),
    ),
    "control has another type, in ONNX's own word": refused(
        f"{INVALID}sequence control 'x', the model expects data-type FLOAT "
        "but the model configuration specifies data-type TYPE_INT32",
        graph=partial(identity, shape=["N", 1]),
        more=sequence("int32", "x"),
    ),
    # inputs and outputs
    "too many inputs": refused(
        f"{INVALID}configuration expects 2 inputs, model provides 1",
        inputs=[X, port("b", "FP32", 1)],
    ),
    "optional input with batching": refused(
        f"{INVALID}optional input 'scale' is not supported for models that support batching",
        inputs=[X, port("scale", "FP32", 1, optional=True)],
    ),
    "input of another name": refused(
        "Invalid argument: unexpected inference input 'xx', allowed inputs are: x",
        inputs=[port("xx", "FP32", 4)],
    ),
    "output of another name": refused(
        "Invalid argument: unexpected inference output 'yy', allowed outputs are: y",
        outputs=[port("yy", "FP32", 4)],
    ),
    "type that ONNX Runtime lacks": refused(
        "Internal: unsupported datatype TYPE_BF16 for input 'x' for model 'M'",
        inputs=[port("x", "BF16", 4)],
    ),
    "input of another type": refused(
        f"{INVALID}configuration expects datatype TYPE_FP32 for input 'x', "
        "model provides TYPE_INT64",
        graph=partial(identity, "INT64"),
    ),
    "input is text": refused(
        f"{INVALID}configuration expects datatype TYPE_FP32 for input 'x', "
        "model provides TYPE_BYTES",
        graph=partial(identity, "STRING"),
    ),
    "output of another type": refused(
        f"{INVALID}configuration expects datatype TYPE_INT32 for output 'y', "
        "model provides TYPE_FP32",
        outputs=[port("y", "INT32", 4)],
    ),
    # shapes
    "model cannot batch": refused(
        "Invalid argument: model 'M', tensor 'x': for the model to support batching the shape "
        "should have at least 1 dimension and the first dimension must be -1; "
        "but shape expected by the model is [1,4]",
        graph=partial(identity, shape=[1, 4]),
    ),
    "batch axis is written twice": refused(
        "Invalid argument: model 'M', tensor 'x': the model expects 2 dimensions (shape [-1,4]) "
        "but the model configuration specifies 3 dimensions (an initial batch dimension because "
        "max_batch_size > 0 followed by the explicit tensor shape, making complete shape "
        "[-1,-1,4])",
        inputs=[port("x", "FP32", -1, 4)],
    ),
    "batch axis is missing": refused(
        "Invalid argument: model 'M', tensor 'x': the model expects 2 dimensions (shape [-1,4]) "
        "but the model configuration specifies 1 dimensions (shape [4])",
        max_batch=0,
    ),
    "fixed size written as open": refused(
        "Invalid argument: model 'M', tensor 'x': the model expects 2 dimensions (shape [-1,4]) "
        "but the model configuration specifies 2 dimensions (an initial batch dimension because "
        "max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,-1])",
        inputs=[port("x", "FP32", -1)],
    ),
    "output must be exact": refused(
        "Invalid argument: model 'M', tensor 'y': the model expects 2 dimensions (shape [-1,-1]) "
        "but the model configuration specifies 2 dimensions (shape [1,4])",
        graph=partial(identity, shape=["N", "K"]),
        max_batch=0,
        inputs=[port("x", "FP32", 1, 4)],
        outputs=[port("y", "FP32", 1, 4)],
    ),
    "scalar is more than one": refused(
        f"{INVALID}scalar tensor 'total', should only provide 1 in the model configuration when "
        "the model doesn't support batching. Model configuration provided: [4].",
        graph=_scalar_output,
        outputs=[port("total", "FP32", 4)],
    ),
    "ragged input is not flat": refused(
        f"{INVALID}configuration expects model provides input with shape [-1]  "
        "for ragged input 'x', model provides [-1,4]",
        inputs=[port("x", "FP32", 4, allow_ragged_batch=True)],
    ),
    # what only the C++ backend does
    "ragged batches": refused(
        f"{REFUSED}allow_ragged_batch{ELSEWHERE}",
        graph=flat,
        inputs=[RAGGED],
        outputs=[port("y", "FP32", 1, reshape={"shape": []})],
    ),
    "batch input and output": refused(
        f"{REFUSED}allow_ragged_batch, batch_input, batch_output{ELSEWHERE}",
        graph=partial(flat, "counts"),
        inputs=[RAGGED],
        outputs=[port("y", "FP32", -1)],
        more={
            "batch_input": [
                {
                    "kind": "BATCH_ELEMENT_COUNT",
                    "target_name": ["counts"],
                    "data_type": "TYPE_INT32",
                    "source_input": ["x"],
                }
            ],
            "batch_output": [
                {
                    "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
                    "target_name": ["y"],
                    "source_input": ["x"],
                }
            ],
        },
    ),
    "optional and ragged": refused(
        f"{INVALID}configuration expects model provides input with shape [-1] for ragged input "
        "'scale', which is not supported for optional input",
        graph=overridable,
        max_batch=0,
        inputs=[
            port("x", "FP32", 2, 4),
            port("scale", "FP32", 1, optional=True, allow_ragged_batch=True),
        ],
        outputs=[],
    ),
    "implicit state": refused(
        f"{REFUSED}sequence_batching.state{ELSEWHERE}",
        inputs=[],
        outputs=[],
        more={"sequence_batching": {"state": [STATE]}},
    ),
}
"""Each text of the C++ backend's checks, then what is said instead of serving wrongly."""
