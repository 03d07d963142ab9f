"""How requests are joined and queued: B001 to B008."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, found, found_in, lines, model

from mmctl.lint.configs.batching import BATCHING_CHECKS
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

COMPLETES = {"m/1/model.py": "def auto_complete_config(config): ..."}


def batching(
    text: str = "", batch: int = 8, inputs: str = "x:FP32[4]", backend: str = "python"
) -> str:
    more = f"dynamic_batching {{ {text} }}"
    return model(inputs, "y:FP32[4]", batch=batch, more=more, backend=backend)


def plain(batch: int, more: str = "", backend: str = "python") -> str:
    return model("x:FP32[4]", "y:FP32[4]", batch=batch, more=more, backend=backend)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            plain(8),
            "info m/config.pbtxt:2 B001 `max_batch_size` is 8, and requests are never joined: "
            "there is no `dynamic_batching`",
            id="no batcher",
        ),
        pytest.param(
            batching(batch=0),
            "warning m/config.pbtxt:5 B002 `dynamic_batching` with `max_batch_size` 0 never joins "
            "requests: the model has no batch axis",
            id="a batcher without a batch axis",
        ),
        pytest.param(
            batching(batch=1),
            "info m/config.pbtxt:5 B002 `dynamic_batching` with `max_batch_size` 1 never joins "
            "requests",
            id="a batcher for one row",
        ),
        pytest.param(
            batching("preferred_batch_size: [ 4, 16 ]"),
            "error m/config.pbtxt:5 B003 the preferred batch size 16 is above `max_batch_size` 8",
            id="a size above the maximum",
        ),
        pytest.param(
            'backend: "onnxruntime"\ndynamic_batching { preferred_batch_size: 4 }',
            "error m/config.pbtxt:2 B003 the preferred batch size 4 is above `max_batch_size` 0, "
            "which is not given",
            id="a size before the backend says its maximum",
        ),
        pytest.param(
            batching("preferred_batch_size: [ 0, 8 ]"),
            "error m/config.pbtxt:5 B003 the preferred batch size 0 must be positive",
            id="a size 0",
        ),
        pytest.param(
            plain(8, "sequence_batching { oldest { preferred_batch_size: 9 } }"),
            "error m/config.pbtxt:5 B003 the preferred batch size 9 is above `max_batch_size` 8",
            id="a size of a sequence batcher",
        ),
        pytest.param(
            batching(inputs="x:FP32[4] wav:FP32[-1]"),
            "info m/config.pbtxt:4 B004 requests join only where their shapes are equal, and `wav` "
            "can vary",
            id="shapes that vary",
        ),
        pytest.param(
            batching("preferred_batch_size: [ 1, 8 ]"),
            "info m/config.pbtxt:5 B005 the preferred batch size 1 ends the waiting for a larger "
            "batch",
            id="a preferred size of 1",
        ),
        pytest.param(
            batching("priority_levels: 3"),
            "error m/config.pbtxt:5 B006 `default_priority_level` is 0, and must be in the range 1 "
            "to 3",
            id="no default priority",
        ),
        pytest.param(
            batching("priority_levels: 3 default_priority_level: 4"),
            "error m/config.pbtxt:5 B006 `default_priority_level` is 4, and must be in the range 1 "
            "to 3",
            id="a default priority out of range",
        ),
        pytest.param(
            batching(
                "priority_levels: 3 default_priority_level: 1 "
                "priority_queue_policy { key: 4 value { max_queue_size: 2 } }"
            ),
            "error m/config.pbtxt:5 B006 `priority_queue_policy` has the priority level 4, and "
            "must be in the range 1 to 3",
            id="a policy out of range",
        ),
        pytest.param(
            batching("default_priority_level: 1"),
            "warning m/config.pbtxt:5 B006 priorities have no effect: `priority_levels` is not "
            "given",
            id="priorities without levels",
        ),
        pytest.param(
            batching("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
            "error m/config.pbtxt:5 B006 `preserve_ordering` allows only one priority level, and "
            "there are 2",
            id="an order of two levels",
        ),
        pytest.param(
            batching(
                "preserve_ordering: true default_queue_policy { timeout_action: DELAY "
                "default_timeout_microseconds: 5 }"
            ),
            "error m/config.pbtxt:5 B006 `preserve_ordering` does not go with the timeout action "
            "DELAY in `default_queue_policy`",
            id="an order with requests that are put off",
        ),
        pytest.param(
            batching("default_queue_policy { allow_timeout_override: true }"),
            "warning m/config.pbtxt:5 B007 `allow_timeout_override` has no effect without "
            "`default_timeout_microseconds`",
            id="a timeout that requests cannot set",
        ),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, text: str, expected: str) -> None:
    assert found_in(tmp_path, text, BATCHING_CHECKS) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(batching(), id="a batcher"),
        pytest.param(batching("preferred_batch_size: [ 4, 8 ]"), id="preferred sizes"),
        pytest.param(plain(0), id="no batch axis"),
        pytest.param(plain(1), id="one row"),
        pytest.param(plain(8, "sequence_batching { }"), id="a sequence batcher"),
        pytest.param(
            plain(8, "model_transaction_policy { decoupled: true }"), id="a decoupled model"
        ),
        pytest.param(plain(8, backend="tensorrtllm"), id="a backend that batches itself"),
        pytest.param('backend: "onnxruntime" max_batch_size: 8', id="Triton adds the batcher"),
        pytest.param('backend: "onnxruntime" dynamic_batching { }', id="Triton sets the maximum"),
        pytest.param(
            batching("default_queue_policy { default_timeout_microseconds: 100 }", batch=1),
            id="one row, for the queue",
        ),
        pytest.param(batching("priority_levels: 2 default_priority_level: 2"), id="two priorities"),
        pytest.param(
            batching("preserve_ordering: true default_queue_policy { timeout_action: DELAY }"),
            id="put off, but never",
        ),
        pytest.param(
            batching(
                "default_queue_policy { allow_timeout_override: true "
                "default_timeout_microseconds: 100 }"
            ),
            id="a timeout that requests may shorten",
        ),
        pytest.param(
            'backend: "python" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 '
            "dims: [ -1 ] allow_ragged_batch: true } dynamic_batching { }",
            id="a ragged batch",
        ),
    ],
)
def test_what_is_right_stays_silent(tmp_path: Path, text: str) -> None:
    assert found_in(tmp_path, text, BATCHING_CHECKS) == []


@pytest.mark.parametrize("text", [plain(8), batching(batch=0)], ids=["B001", "B002"])
def test_a_model_that_sets_its_own_batching_is_left_alone(tmp_path: Path, text: str) -> None:
    assert found_in(tmp_path, text, BATCHING_CHECKS, COMPLETES) == []


LIMIT = "dynamic_batching { default_queue_policy { max_queue_size: 4 } }"
SIDE_BY_SIDE = ("a x=x -> y=s", "m x=x -> y=t")
CHAIN = ("a x=x -> y=s", "m x=s -> y=t")
TWICE = ("m x=x -> y=s", "m x=s -> y=t")


@pytest.mark.parametrize(
    ("steps", "release", "wrong"),
    [
        pytest.param(SIDE_BY_SIDE, "24.10", True, id="side by side"),
        pytest.param(TWICE, "24.10", True, id="called twice"),
        pytest.param(CHAIN, "24.10", False, id="one after the other"),
        pytest.param(SIDE_BY_SIDE, "26.02", False, id="mended in 26.02"),
        pytest.param(SIDE_BY_SIDE, "", False, id="no release said"),
    ],
)
def test_a_queue_limit_in_an_ensemble(
    tmp_path: Path, steps: tuple[str, ...], release: str, wrong: bool
) -> None:
    files = {
        "flow/config.pbtxt": ensemble("x:FP32[4]", "s:FP32[4] t:FP32[4]", *steps),
        "m/config.pbtxt": plain(8, LIMIT),
    }
    target = Target(release=parse_release(release) if release else None)
    message = (
        "error m/config.pbtxt:5 B008 `max_queue_size` of a model that the branching ensemble "
        "`flow` calls makes Triton 24.10 hang or crash when the queue is full"
    )
    expected = [message] if wrong else []
    assert lines(found(tmp_path, files, BATCHING_CHECKS, target=target)) == expected
