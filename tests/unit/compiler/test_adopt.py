"""Ensembles that people wrote -> pipeline.yaml, and what pipeline.yaml cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

import pytest
from pipelines import signature

from mmctl.compiler.adopt import Adopted, Callee, Original, adopt_ensemble, name_nodes
from mmctl.compiler.adopt.proof import find_differences
from mmctl.lint.text import read_config_text
from mmctl.tensors import Signature
from mmctl.triton.pbtxt import parse_config

SHOWN = "repo/flow/config.pbtxt"

MODELS: Mapping[str, Signature] = {
    "encoder": signature(
        {"input_ids": "int64[-1]", "attention_mask": "int64[-1]"}, {"embedding": "fp32[4]"}, 16
    ),
    "head": signature({"embedding": "fp32[4]"}, {"probs": "fp32[2]", "score": "fp32"}),
    "double": signature({"x": "fp32"}, {"y": "fp32"}),
    "speller": signature({"text": "string", "hint?": "string"}, {"text": "string"}),
    "Foreign-Model.v2": signature({"input/0": "fp32"}, {"4195": "fp32"}),
    "join": signature({"a": "fp32", "b": "fp32"}, {"y": "fp32"}),
    "plain": signature({"x": "fp32"}, {"y": "fp32"}, max_batch=0),
    "lac": signature({"x": "int64[-1,-1]"}, {"tags": "int64[-1,-1]"}, max_batch=0),
    "halves": signature({"x": "bf16"}, {"y": "bf16"}),
}
CALLEES: Mapping[str, Callee] = {
    **{name: Callee(found, f"repo/{name}/config.pbtxt") for name, found in MODELS.items()},
    "stream": Callee(MODELS["double"], "repo/stream/config.pbtxt", decoupled=True),
    "completed": Callee(Signature((), (), 8), "repo/completed/config.pbtxt"),
    "gone": Callee(Signature((), ()), "repo/gone", exists=False),
}


def original(config: str, name: str = "flow") -> Original:
    content = dedent(config)
    return Original(name, read_config_text(content, SHOWN), parse_config(content, where=SHOWN))


def adopted(config: str, name: str = "flow") -> Adopted:
    return adopt_ensemble(original(config, name), CALLEES)


def step(model: str, inputs: str, outputs: str, version: str = "model_version: -1") -> str:
    """`inputs` and `outputs` as "model's name=tensor ..."."""

    def entries(field: str, pairs: str) -> str:
        split = (pair.split("=") for pair in pairs.split())
        return " ".join(f'{field} {{ key: "{key}" value: "{value}" }}' for key, value in split)

    maps = f"{entries('input_map', inputs)} {entries('output_map', outputs)}"
    return f'step {{ model_name: "{model}" {version} {maps} }}'


def tensors(field: str, pairs: str) -> str:
    """`pairs` as "name=FP32:4,2 ..."; without dims it is one value."""
    split = (pair.partition("=") for pair in pairs.split())
    parts = [(name, *kind.partition(":")) for name, _, kind in split]
    return "\n".join(
        f'{field} {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims or 1} ] }}'
        for name, kind, _, dims in parts
    )


def ensemble(
    inputs: str, outputs: str, *steps: str, max_batch: int = 8, more: str = "", inside: str = ""
) -> str:
    return "\n".join(
        [
            'platform: "ensemble"',
            f"max_batch_size: {max_batch}",
            tensors("input", inputs),
            tensors("output", outputs),
            more,
            f"ensemble_scheduling {{ {inside}",
            *steps,
            "}",
        ]
    )


CHAIN = (
    step("encoder", "input_ids=ids attention_mask=mask", "embedding=vector"),
    step("head", "embedding=vector", "score=how"),
)
TOKENS = "ids=INT64:-1 mask=INT64:-1"


def lines(result: Adopted) -> list[str]:
    """The file without its first comment."""
    return [line for line in result.text.splitlines() if not line.startswith("#")]


def test_a_chain_reads_as_a_person_would_write_it() -> None:
    result = adopted(ensemble(TOKENS, "how=FP32", *CHAIN))
    assert result.differences == ()
    assert lines(result) == [
        "pipeline: flow",
        'inputs: {ids: "int64[-1]", mask: "int64[-1]"}',
        "nodes:",
        "  encoder: {model: encoder, inputs: {input_ids: ids, attention_mask: mask}}",
        "  head:    {model: head, inputs: {embedding: encoder.embedding}}",
        "outputs: {how: head.score}",
    ]
    assert (result.nodes, result.models, result.copies) == (
        ("encoder", "head"),
        ("encoder", "head"),
        (),
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("double", "x=x", "y=y"), max_batch=4),
            [
                "pipeline: flow",
                "inputs: {x: fp32}",
                "max_batch: 4",
                "nodes:",
                "  double: {model: double, inputs: {x: x}}",
                "outputs: {y: double.y}",
            ],
            id="a smaller batch than the models take is said",
        ),
        pytest.param(
            ensemble("x=INT64:-1,-1", "t=INT64:-1,-1", step("lac", "x=x", "tags=t"), max_batch=0),
            [
                "pipeline: flow",
                'inputs: {x: "int64[-1,-1]"}',
                "nodes:",
                "  lac: {model: lac, inputs: {x: x}}",
                "outputs: {t: lac.tags}",
            ],
            id="no batch axis at all",
        ),
        pytest.param(
            ensemble(
                "x=FP32",
                "y=FP32",
                step("double", "x=x", "y=t0"),
                step("double", "x=t0", "y=t1"),
                step("double", "x=t1", "y=y"),
            ),
            [
                "pipeline: flow",
                "inputs: {x: fp32}",
                "nodes:",
                "  double:   {model: double, inputs: {x: x}}",
                "  double_2: {model: double, inputs: {x: double.y}}",
                "  double_3: {model: double, inputs: {x: double_2.y}}",
                "outputs: {y: double_3.y}",
            ],
            id="a model that is called three times",
        ),
        pytest.param(
            ensemble(
                "x=FP32",
                "y=FP32",
                step("Foreign-Model.v2", "input/0=x", "4195=deep/tensor:0"),
                step("double", "x=deep/tensor:0", "y=y"),
            ),
            [
                "pipeline: flow",
                "inputs: {x: fp32}",
                "nodes:",
                "  foreign_model_v2: {model: Foreign-Model.v2, inputs: {input/0: x}}",
                "  double:           {model: double, inputs: {x: foreign_model_v2.4195}}",
                "outputs: {y: double.y}",
            ],
            id="names of models and inner tensors that are no identifiers",
        ),
        pytest.param(
            ensemble("text=STRING", "fixed=STRING", step("speller", "text=text", "text=fixed")),
            [
                "pipeline: flow",
                "inputs: {text: string}",
                "nodes:",
                "  speller: {model: speller, inputs: {text: text}}",
                "outputs: {fixed: speller.text}",
            ],
            id="an optional input of a model that is left out",
        ),
        pytest.param(
            ensemble(
                "x=FP32",
                "y=FP32",
                step("double", "x=t", "y=y"),
                step("double", "x=x", "y=t"),
                more="version_policy { latest { num_versions: 1 } } response_cache { }",
            ),
            [
                "pipeline: flow",
                "inputs: {x: fp32}",
                "nodes:",
                "  double:   {model: double, inputs: {x: double_2.y}}",
                "  double_2: {model: double, inputs: {x: x}}",
                "outputs: {y: double.y}",
            ],
            id="steps in another order than they run, and fields that say the default",
        ),
    ],
)
def test_what_an_ensemble_becomes(config: str, expected: list[str]) -> None:
    result = adopted(config)
    assert [d.text() for d in result.differences] == []
    assert lines(result) == expected


def test_what_is_too_long_for_a_line_is_written_in_several() -> None:
    names = " ".join(f"a_rather_long_name_of_an_output_{number}=FP32" for number in range(4))
    steps = [
        step("join", f"a=x b={'u' * 90}", "y=a_rather_long_name_of_an_output_0"),
        *(
            step("double", "x=x", f"y=a_rather_long_name_of_an_output_{number}")
            for number in range(1, 4)
        ),
    ]
    result = adopted(ensemble(f"x=FP32 {'u' * 90}=FP32", names, *steps))
    assert result.differences == ()
    assert lines(result) == [
        "pipeline: flow",
        "inputs:",
        "  x: fp32",
        f"  {'u' * 90}: fp32",
        "nodes:",
        "  join:",
        "    model: join",
        "    inputs:",
        "      a: x",
        f"      b: {'u' * 90}",
        "  double:   {model: double, inputs: {x: x}}",
        "  double_2: {model: double, inputs: {x: x}}",
        "  double_3: {model: double, inputs: {x: x}}",
        "outputs:",
        "  a_rather_long_name_of_an_output_0: join.y",
        "  a_rather_long_name_of_an_output_1: double.y",
        "  a_rather_long_name_of_an_output_2: double_2.y",
        "  a_rather_long_name_of_an_output_3: double_3.y",
    ]


def test_an_output_that_a_step_reads_gets_a_copy_which_is_told() -> None:
    """Else Triton answers "unexpected deadlock" to a request for `y` alone."""
    steps = (step("double", "x=x", "y=mid"), step("double", "x=mid", "y=y"))
    result = adopted(ensemble("x=FP32", "mid=FP32 y=FP32", *steps))
    assert result.differences == ()
    assert result.copies == ("flow__double__copy",)


def test_inputs_that_have_no_safe_first_step_get_a_copy_which_is_told() -> None:
    steps = (step("double", "x=a", "y=p"), step("double", "x=b", "y=q"))
    result = adopted(ensemble("a=FP32 b=FP32", "p=FP32 q=FP32", *steps))
    assert result.differences == ()
    assert result.copies == ("flow__copy__inputs",)


ONE = step("double", "x=x", "y=y")


@pytest.mark.parametrize(
    ("config", "field", "message"),
    [
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("double", "x=x", "y=y", "model_version: 3")),
            "ensemble_scheduling.step[0].model_version",
            "step 0 pins version 3 of `double`: pipeline.yaml pins none, mmctl serves each "
            "pipeline with the versions that it was built with",
            id="a pinned version",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("double", "x=x", "y=y", "")),
            "ensemble_scheduling.step[0].model_version",
            "step 0 (`double`) says no `model_version`, which means 0",
            id="no version is version 0",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, more="response_cache { enable: true }"),
            "response_cache",
            "`response_cache` is set: mmctl gives no pipeline Triton's cache, whose key leaves out "
            "shapes and requested outputs",
            id="response cache",
        ),
        pytest.param(
            ensemble(
                "x=FP32",
                "y=FP32",
                ONE,
                more='parameters { key: "a" value { string_value: "b" } } '
                'parameters { key: "c" value { string_value: "d" } }',
            ),
            "parameters",
            "`parameters` is set: a pipeline has none",
            id="parameters, told once",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, more="version_policy { all { } }"),
            "version_policy",
            "`version_policy` is set: mmctl numbers the versions of a pipeline and serves the one "
            "that was built",
            id="version policy",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, more="model_transaction_policy { decoupled: true }"),
            "model_transaction_policy",
            "`model_transaction_policy` is set: Triton sets it by itself, from the models that are "
            "called",
            id="decoupled said by the ensemble",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, inside="max_inflight_requests: 4"),
            "ensemble_scheduling.max_inflight_requests",
            "`ensemble_scheduling.max_inflight_requests` is 4: pipeline.yaml has no key for it",
            id="a field that few know",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE).replace(
                "dims: [ 1 ] }", "dims: [ 1 ] reshape { shape: [ ] } }", 1
            ),
            "input[0].reshape",
            "`input[0].reshape` is set: a pipeline takes and gives tensors in the shape that its "
            "models have",
            id="reshape",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE).replace("[ 1 ] }", "[ 1 ] optional: true }", 1),
            "input[0].optional",
            "`input[0].optional` is true: a pipeline needs all of its inputs",
            id="an optional input of the ensemble",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE.replace("-1", '-1 model_namespace: "n"')),
            "ensemble_scheduling.step[0].model_namespace",
            "`ensemble_scheduling.step[0].model_namespace` is n: pipeline.yaml has no key for it",
            id="model namespace",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, more='name: "other"'),
            "name",
            "`name` is `other`, but the folder is `flow`",
            id="a name that is not the folder's",
        ),
        pytest.param(
            ensemble("in.0=FP32", "y=FP32", step("double", "x=in.0", "y=y")),
            "input[0].name",
            "`in.0` is not a name for a pipeline's input: letters, digits and single _, no digit "
            "first",
            id="an input that is no identifier",
        ),
        pytest.param(
            ensemble("x=FP32", "a__b=FP32", step("double", "x=x", "y=a__b")),
            "output[0].name",
            "`a__b` is not a name for a pipeline's output: letters, digits and single _, no digit "
            "first",
            id="an output with a name that mmctl keeps for itself",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("stream", "x=x", "y=y")),
            "ensemble_scheduling.step[0].model_name",
            "`stream` is decoupled: it may answer a request many times, a pipeline answers once",
            id="a decoupled step",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("completed", "x=x", "y=y")),
            "ensemble_scheduling.step[0].model_name",
            "the signature of `completed` is not known: its config names no inputs or no outputs, "
            "Triton completes it when the model loads",
            id="a config that Triton completes",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("gone", "x=x", "y=y")),
            "ensemble_scheduling.step[0].model_name",
            "there is no model `gone` in the repository",
            id="a model that is not there",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("plain", "x=x", "y=y")),
            "ensemble_scheduling.step[0].model_name",
            "step 0 (`plain`) takes no batch: this ensemble hands it the whole batch as one "
            "tensor, a pipeline would call it row by row",
            id="a step without batch axis in an ensemble with one",
        ),
        pytest.param(
            ensemble("x=FP32:-1,1", "y=FP32:-1,1", ONE, max_batch=0),
            "max_batch_size",
            "`max_batch_size` is 0, but `double` takes batches of 8: a pipeline has the batch axis "
            "of the models that it calls",
            id="an ensemble without batch axis on models with one",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, max_batch=64),
            "ensemble_scheduling",
            "as a pipeline: Y116 `max_batch` is 64, but `double` takes at most 8",
            id="a batch that a model cannot take",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32:-1", ONE),
            "output[0].dims",
            "`output.y.dims` is [-1], as a pipeline it would be [1]",
            id="an output that is said looser than its model gives it",
        ),
        pytest.param(
            ensemble("x=FP32", "y=INT32", ONE),
            "output[0].data_type",
            "`output.y.data_type` is TYPE_INT32, as a pipeline it would be TYPE_FP32",
            id="an output of another type than its model gives",
        ),
        pytest.param(
            ensemble("x=INT64", "y=FP32", ONE),
            "ensemble_scheduling.step[0].model_name",
            "as a pipeline: Y109 `double.x` takes fp32, but `x` is int64",
            id="an edge that does not fit",
        ),
        pytest.param(
            ensemble("x=FP32 z=FP32", "y=FP32", ONE),
            "input[1].name",
            "no step reads the input `z`",
            id="an input that nothing reads",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, step("double", "x=x", "y=lost")),
            'ensemble_scheduling.step[1].output_map["y"]',
            "`lost` is written by step 1 (`double`) and never read",
            id="a tensor that nothing reads",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("double", "x=nothing", "y=y")),
            'ensemble_scheduling.step[0].input_map["x"]',
            "step 0 (`double`) reads `nothing`, which nothing writes",
            id="a tensor that nothing writes",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32 w=FP32", ONE),
            "output[1].name",
            "no step writes the output `w`",
            id="an output that nothing writes",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", ONE, step("double", "x=x", "y=y")),
            'ensemble_scheduling.step[1].output_map["y"]',
            "`y` is written twice: by step 0 and step 1",
            id="a tensor written twice",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("double", "x=x", "y=y z=y2")),
            'ensemble_scheduling.step[0].output_map["z"]',
            "`double` has no output `z`",
            id="an output that the model does not have",
        ),
        pytest.param(
            ensemble("x=FP32", "y=FP32", step("join", "a=x", "y=y")),
            "ensemble_scheduling.step[0].input_map",
            "step 0 (`join`) maps no tensor to the input `b`",
            id="an input of the model that nothing feeds",
        ),
        pytest.param(
            ensemble(
                "x=FP32", "y=FP32", step("double", "x=t", "y=u"), step("double", "x=u", "y=t"), ONE
            ),
            "ensemble_scheduling.step[0].model_name",
            "as a pipeline: Y112 nodes feed each other in a circle: double -> double_2 -> double",
            id="steps in a circle",
        ),
        pytest.param(
            ensemble(
                "x=BF16",
                "m=BF16 y=BF16",
                step("halves", "x=x", "y=m"),
                step("halves", "x=m", "y=y"),
            ),
            "ensemble_scheduling",
            "`y` is bf16, and shown as an output although a node reads it too",
            id="a copy that numpy cannot make",
        ),
    ],
)
def test_what_pipeline_yaml_cannot_say_is_named(config: str, field: str, message: str) -> None:
    differences = adopted(config).differences
    assert (field, message) in [(d.field, d.message) for d in differences]
    assert all(difference.at.path == SHOWN for difference in differences)


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (["encoder", "Head-v2"], ("encoder", "head_v2")),
        (["encoder", "encoder", "encoder"], ("encoder", "encoder_2", "encoder_3")),
        (["encoder_2", "encoder", "encoder"], ("encoder_2", "encoder", "encoder_3")),
        (["flow_encoder", "flow__head", "flow"], ("encoder", "head", "flow")),
        (["4195", "flow_2", "__", "模型"], ("model_4195", "flow_2", "model", "model_2")),
    ],
)
def test_nodes_are_named_after_their_models(models: list[str], names: tuple[str, ...]) -> None:
    assert name_nodes("flow", models) == names


def test_a_name_that_cannot_be_a_folder_says_what_to_do() -> None:
    [wrong] = adopted(ensemble("x=FP32", "y=FP32", ONE), name="Text-Flow").differences
    assert wrong.message == "`Text-Flow` is not a name: use a-z, 0-9 and _, a letter first"
    assert wrong.hint is not None
    assert wrong.hint.startswith("rename the ensemble and let its callers follow, or leave")


def test_a_difference_stands_at_its_line_and_column() -> None:
    config = """\
    platform: "ensemble"
    max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
    ensemble_scheduling {
      step {
        model_name: "double"
        model_version: 2
        input_map { key: "x" value: "x" }
        output_map { key: "y" value: "y" }
      }
    }
    """
    [wrong] = adopted(config).differences
    assert str(wrong.at) == f"{SHOWN}:8:5"


def test_all_differences_are_told_at_once() -> None:
    steps = (step("double", "x=x", "y=t", "model_version: 2"), step("gone", "x=t", "y=y"))
    config = ensemble("x=FP32", "y=FP32", *steps, more="response_cache { enable: true }")
    assert [d.field for d in adopted(config).differences] == [
        "response_cache",
        "ensemble_scheduling.step[0].model_version",
        "ensemble_scheduling.step[1].model_name",
    ]


FAN = (
    step("double", "x=x", "y=t"),
    step("double", "x=x", "y=u"),
    step("join", "a=t b=u", "y=y"),
)
CHANGES = {
    "a wire to another tensor": ('key: "b" value: "u"', 'key: "b" value: "t"'),
    "another model": ('model_name: "join"', 'model_name: "double"'),
    "another version": ("model_version: -1", "model_version: 2"),
    "another batch": ("max_batch_size: 8", "max_batch_size: 4"),
    "another type": ("TYPE_FP32", "TYPE_FP16"),
    "one more field": ("max_batch_size: 8", "max_batch_size: 8 response_cache { enable: true }"),
    "an output of another name": ('output { name: "y"', 'output { name: "t"'),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_proof_sees_a_change_of_one_word(change: tuple[str, str]) -> None:
    config = ensemble("x=FP32", "y=FP32", *FAN)
    result = adopted(config)
    assert result.compiled is not None
    assert change[0] in config
    other = original(config.replace(*change, 1))
    assert list(find_differences(other, result.nodes, result.compiled))


def test_names_of_inner_tensors_and_the_order_of_steps_mean_nothing_to_the_proof() -> None:
    result = adopted(ensemble("x=FP32", "y=FP32", *FAN))
    assert result.compiled is not None
    steps = (
        step("join", "a=left b=right", "y=y"),
        step("double", "x=x", "y=right"),
        step("double", "x=x", "y=left"),
    )
    other = original(ensemble("x=FP32", "y=FP32", *steps))
    assert list(find_differences(other, ("join", "double_2", "double"), result.compiled)) == []
