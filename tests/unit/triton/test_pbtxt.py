"""config.pbtxt through Triton's own protobuf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.errors import InputError
from mmctl.tensors import DType
from mmctl.triton.config import (
    Accelerator,
    ConfigTensor,
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    Optimization,
    QueuePolicy,
    Warmup,
    WarmupInput,
)
from mmctl.triton.pbtxt import (
    called_models,
    parse_config,
    pin_config,
    render_config,
    with_setting,
)

names = st.text("abcXYZ_019", min_size=1, max_size=8)
sizes = st.lists(st.integers(1, 512), max_size=4).map(tuple)
dims = st.lists(st.integers(-1, 512).filter(bool), min_size=1, max_size=4).map(tuple)
dtypes = st.sampled_from([d for d in DType if d is not DType.BYTES])
tensors = st.builds(ConfigTensor, names, dtypes, dims, st.none() | sizes)
inputs = st.builds(
    ConfigTensor, names, dtypes, dims, st.none() | sizes, st.booleans(), st.booleans()
)
queues = st.builds(QueuePolicy, st.integers(1, 10**9), st.sampled_from(["REJECT", "DELAY"]))
batching = st.builds(
    DynamicBatching, st.integers(0, 10**9), sizes, st.booleans(), st.none() | queues
)
groups = st.builds(InstanceGroup, st.integers(1, 8), st.sampled_from(["KIND_CPU", "KIND_AUTO"]))
accelerators = st.lists(
    st.builds(Accelerator, names, st.dictionaries(names, names, max_size=2)), max_size=2
).map(tuple)
optimizations = st.builds(
    Optimization, st.none() | st.sampled_from([-1, 1, 2]), accelerators, accelerators
)
warmups = st.builds(
    Warmup,
    names,
    st.integers(1, 8),
    st.dictionaries(names, st.builds(WarmupInput, dtypes, dims), min_size=1, max_size=2),
)
models = st.builds(
    ModelConfig,
    names,
    st.lists(inputs, max_size=3).map(tuple),
    st.lists(tensors, max_size=3).map(tuple),
    max_batch_size=st.integers(0, 128),
    batching=st.none() | batching,
    instances=st.lists(groups, max_size=2).map(tuple),
    versions=sizes,
    parameters=st.dictionaries(names, names, max_size=3),
    optimization=st.none() | optimizations,
    warmups=st.lists(warmups, max_size=2).map(tuple),
    response_cache=st.booleans(),
)
wires = st.dictionaries(names, names, min_size=1, max_size=3)
ensembles = st.builds(
    ModelConfig,
    names,
    st.lists(inputs, max_size=2).map(tuple),
    st.lists(tensors, max_size=2).map(tuple),
    platform=st.just("ensemble"),
    steps=st.lists(st.builds(EnsembleStep, names, wires, wires), min_size=1, max_size=3).map(tuple),
)


@given(models | ensembles)
def test_what_is_rendered_parses_back_to_the_same_config(config: ModelConfig) -> None:
    assert parse_config(render_config(config), where="t") == config


@given(models)
def test_equal_values_give_equal_bytes(config: ModelConfig) -> None:
    again = parse_config(render_config(config), where="t")
    assert render_config(again) == render_config(config)


def test_no_batching_is_written_out() -> None:
    text = render_config(ModelConfig("m", (), ()))
    assert text == 'name: "m"\nmax_batch_size: 0\n'


def test_a_misspelt_field_is_told_with_line_and_column() -> None:
    with pytest.raises(InputError, match=r"^m/config\.pbtxt:2:1: .*max_batchsize"):
        parse_config('name: "m"\nmax_batchsize: 8\n', where="m/config.pbtxt")


FOREIGN = """
name: "e"
platform: "ensemble"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step {
    model_name: "a" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "t" }
  }
  step {
    model_name: "b" model_version: 7
    input_map { key: "x" value: "t" } output_map { key: "y" value: "y" }
  }
}
model_warmup { name: "keep me" batch_size: 3 }
"""


def test_pinning_sets_versions_and_loses_no_field() -> None:
    text = pin_config(FOREIGN, where="t", versions=(2,), calls={"a": 5})
    config = parse_config(text, where="t")
    assert [step.version for step in config.steps] == [5, 7]
    assert config.versions == (2,)
    assert config.warmups[0].name == "keep me"


def test_the_models_that_an_ensemble_calls_are_listed_once_in_order() -> None:
    assert called_models(FOREIGN, where="t") == ("a", "b")


SERVED = """
name: "tag" backend: "python" max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 500 preferred_batch_size: [4, 8] }
instance_group [{ kind: KIND_CPU, count: 1 }]
model_warmup [{ name: "w", batch_size: 8 }]
parameters { key: "kept" value { string_value: "yes" } }
"""


def test_a_model_is_set_to_be_served_in_another_way_and_stays_what_it_is() -> None:
    text = with_setting(SERVED, where="x", max_batch=4, instances=3, delay_us=2000)
    config = parse_config(text, where="x")
    assert config.max_batch_size == 4
    assert config.batching is not None
    assert (config.batching.max_delay_us, config.batching.preferred) == (2000, (4,))
    assert [group.count for group in config.instances] == [3]
    assert config.warmups[0].batch_size == 4
    assert config.parameters == {"kept": "yes"}


def test_batches_of_one_are_not_waited_for() -> None:
    one = parse_config(with_setting(SERVED, where="x", max_batch=1), where="x")
    assert (one.max_batch_size, one.batching) == (1, None)
    assert [group.count for group in one.instances] == [1]


def test_an_ensemble_only_takes_smaller_batches() -> None:
    text = 'name: "all" platform: "ensemble" max_batch_size: 8 ensemble_scheduling { step [] }'
    made = parse_config(with_setting(text, where="x", max_batch=2), where="x")
    assert (made.max_batch_size, made.batching, made.instances) == (2, None, ())
