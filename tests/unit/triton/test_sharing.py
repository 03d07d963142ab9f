"""One config with which several versions of a model can be served."""

from __future__ import annotations

import pytest

from mmctl.triton.pbtxt import parse_config
from mmctl.triton.sharing import share_config


def config(inputs: str = "x", outputs: str = "y", more: str = "") -> str:
    """Tensors by name, each of one FP32 value."""
    tensors = [("input", name) for name in inputs.split()]
    tensors += [("output", name) for name in outputs.split()]
    lines = [f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}' for kind, name in tensors]
    return f'name: "m" backend: "python" max_batch_size: 4\n{chr(10).join(lines)}\n{more}'


def share(newest: str, *others: str, runner: bool = True) -> str:
    return share_config(newest, others, runner=runner, where="config.pbtxt")


def test_settings_are_those_of_the_newest() -> None:
    new = config(more="instance_group { count: 2 kind: KIND_CPU } response_cache { enable: true }")
    shared = parse_config(share(new, config(), runner=False), where="t")
    assert shared.instances[0].count == 2
    assert shared.response_cache


def test_of_two_batch_sizes_the_larger_serves_both() -> None:
    old = config().replace("max_batch_size: 4", "max_batch_size: 16")
    assert parse_config(share(config(), old), where="t").max_batch_size == 16


def test_a_runner_gives_the_outputs_of_all_and_wants_only_inputs_that_all_have() -> None:
    shared = parse_config(share(config("x a", "y"), config("x b", "z")), where="t")
    assert {t.name: t.optional for t in shared.inputs} == {"x": False, "a": True, "b": True}
    assert [t.name for t in shared.outputs] == ["y", "z"]


@pytest.mark.parametrize(
    ("other", "runner", "reason"),
    [
        pytest.param(config("x b"), False, "differ in `input`", id="another input"),
        pytest.param(config(outputs="y z"), False, "differ in `output`", id="another output"),
        pytest.param(
            config().replace("FP32", "INT32", 1), True, "input `x` has another type", id="type"
        ),
        pytest.param(
            config().replace("dims: 1", "dims: 2", 1), True, "input `x` has another", id="shape"
        ),
        pytest.param(
            config().replace("size: 4", "size: 0"), True, "the other has none", id="batch axis"
        ),
        pytest.param(
            config(more='parameters { key: "a" value: { string_value: "b" } }'),
            True,
            "differ in `parameters`",
            id="parameters",
        ),
    ],
)
def test_what_cannot_be_shared_is_named(other: str, runner: bool, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        share(config(), other, runner=runner)
