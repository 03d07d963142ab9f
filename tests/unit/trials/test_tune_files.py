"""model.yaml and pipeline.yaml with other settings, and with all else as it was."""

from __future__ import annotations

import pytest

from mmctl.errors import InputError
from mmctl.loadtest.simulate import Setting
from mmctl.trials.tune_files import Place, render_diff, retuned

MODEL = Place("model.yaml")
NODE = Place("pipeline.yaml", "words")
WAS = Setting(8, 1, 0.0)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        pytest.param(
            "source: {onnx: a.onnx}   # where\n",
            Setting(16, 2, 0.0025),
            "source: {onnx: a.onnx}   # where\n"
            "batching: {max_batch: 16, max_delay_ms: 2.5}\ninstances: {cpu: 2}\n",
            id="nothing was said",
        ),
        pytest.param(
            "batching: {max_batch: 8, max_delay_ms: 0}  # why\nsource: {onnx: a}\n",
            Setting(16, 1, 0.002),
            "batching: {max_batch: 16, max_delay_ms: 2}  # why\nsource: {onnx: a}\n",
            id="values in a line",
        ),
        pytest.param(
            "batching:\n  max_batch: 8   # rows\n  # next\n  queue_timeout_ms: 50  # kept\n"
            "\nsource: {onnx: a}\n",
            Setting(4, 1, 0.001),
            "batching:\n  max_batch: 4   # rows\n  # next\n  queue_timeout_ms: 50  # kept\n"
            "  max_delay_ms: 1\n\nsource: {onnx: a}\n",
            id="a block",
        ),
        pytest.param(
            "batching: latency  # fast\nsource: {onnx: a}",
            Setting(8, 3, 0.001),
            "batching: {max_batch: 8, max_delay_ms: 1}  # fast\nsource: {onnx: a}\n"
            "instances: {cpu: 3}\n",
            id="a preset, and no newline at the end",
        ),
        pytest.param(
            "batching: {max_batch: 8, preferred: [4, 8]}\n",
            Setting(4, 1, 0.0),
            "batching: {max_batch: 4, preferred: [4]}\n",
            id="preferred sizes that no longer fit",
        ),
        pytest.param(
            "instances: {gpu: 2}\n", Setting(8, 2), "instances: {gpu: 2, cpu: 2}\n", id="beside"
        ),
        pytest.param("batching: {}\n", Setting(4), "batching: {max_batch: 4}\n", id="empty"),
        pytest.param("batching:\n", Setting(4), "batching: {max_batch: 4}\n", id="no value"),
        pytest.param("# alone\nsource: {a: b}\n", WAS, "# alone\nsource: {a: b}\n", id="the same"),
    ],
)
def test_a_model(before: str, now: Setting, after: str) -> None:
    assert retuned(before, MODEL, WAS, now) == after


def test_a_step_is_set_at_its_node() -> None:
    text = (
        "pipeline: p\nnodes:\n"
        "  words: {step: find, inputs: {text: text}, outputs: {hits: int32}}   # quick\n"
        "  last:\n    step: judge\n    inputs: {x: words.hits}\n"
        "outputs: {x: last.x}\n"
    )
    after = retuned(text, NODE, WAS, Setting(4, 2))
    assert (
        "outputs: {hits: int32}, batching: {max_batch: 4}, instances: {cpu: 2}}   # quick" in after
    )
    after = retuned(text, Place("pipeline.yaml", "last"), WAS, Setting(4))
    assert "    inputs: {x: words.hits}\n    batching: {max_batch: 4}\noutputs:" in after


def test_the_diff_names_the_file() -> None:
    diff = render_diff("model.yaml", "a: b\n", "a: c\n")
    assert diff.splitlines()[0] == "--- model.yaml"
    assert "-a: b\n+a: c\n" in diff


def test_what_an_edit_would_change_elsewhere_is_left_to_people() -> None:
    """An anchor stands for two values."""
    text = "batching: &b {max_batch: 8}\nother: *b\n"
    with pytest.raises(InputError, match="too unusual") as caught:
        retuned(text, MODEL, WAS, Setting(4))
    assert "`batching.max_batch: 4`" in str(caught.value.hint)
