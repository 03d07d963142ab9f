"""The accuracy gate on functions of numpy, then a whole conversion with a stage made for it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import lower_here, write_model, write_samples
from onnx_samples import onnx_model

from mmctl.errors import InputError, MmctlError, Refused
from mmctl.exporters.accuracy.data import Sample
from mmctl.exporters.accuracy.gate import Files, measure, prove_accuracy, prove_batch_law
from mmctl.exporters.accuracy.rules import Rules
from mmctl.exporters.base import Evidence
from mmctl.exporters.lowering import prove_floor
from mmctl.exporters.precision import Planned
from mmctl.exporters.precision.base import Conversion
from mmctl.exporters.precision.files import finish
from mmctl.exporters.spec import read_model
from mmctl.exporters.traced import ModelFails, Runner
from mmctl.files import sha256_file
from mmctl.tensors import Array

Function = Callable[[Array], Array]
ROWS = np.random.default_rng(0).standard_normal((200, 4))


def runner(function: Function) -> Runner:
    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        return [function(arrays["x"])]

    return run


def files(variant: Function, *, max_batch: int = 16, batched: bool = True) -> Files:
    return Files(runner(variant), runner(lambda x: x), ["y"], batched=batched, max_batch=max_batch)


def samples(rows: Array = ROWS) -> list[Sample]:
    return [Sample({"x": rows}, {})]


def test_equal_answers_are_accepted_with_what_was_measured() -> None:
    (evidence,) = prove_accuracy(files(lambda x: x * 1.001), Rules("int8"), samples())
    assert evidence["metric"] == "cosine"
    assert (evidence["value"], evidence["interval"], evidence["rows"]) == (1.0, [1.0, 1.0], 200)
    assert "warning" not in evidence


def test_few_samples_are_accepted_with_a_warning() -> None:
    (evidence,) = prove_accuracy(files(lambda x: x), Rules("int8"), samples(ROWS[:7]))
    assert evidence["warning"] == "7 held-out rows are too few to tell"


@pytest.mark.parametrize(
    ("variant", "rules", "said"),
    [
        pytest.param(
            lambda x: x + np.random.default_rng(0).standard_normal(x.shape),
            Rules("int8"),
            r"^cosine of `y` with FP32 is 0.\d+ \(95 %: 0.\d+ to 0.\d+, 200 rows\), the limit is 0",
            id="noise",
        ),
        pytest.param(
            lambda x: np.where(x > 2, np.nan, x),
            Rules("fp16"),
            r"^\d+% of `y` is NaN or infinite where FP32 has a number",
            id="NaN",
        ),
        pytest.param(
            lambda x: np.where(x > 2, np.inf, x), Rules("int8"), "NaN or infinite", id="infinite"
        ),
        pytest.param(
            lambda x: x[:, :2],
            Rules("int8"),
            r"`y` has shape \[16, 2\], in FP32 \[16, 4\]",
            id="shape",
        ),
        pytest.param(
            lambda x: x + (x == ROWS.max()) * 0.1,
            Rules("fp16"),
            r"`y` differs from FP32 by 0.0\d+ of its scale, the limit is 0.01",
            id="one number far off, in FP16",
        ),
    ],
)
def test_other_answers_are_refused_with_the_number(
    variant: Function, rules: Rules, said: str
) -> None:
    with pytest.raises(Refused, match=said):
        prove_accuracy(files(variant), rules, samples())


def test_one_number_far_off_is_no_matter_in_int8() -> None:
    assert prove_accuracy(files(lambda x: x + (x == ROWS.max()) * 0.1), Rules("int8"), samples())


def test_what_is_infinite_in_fp32_may_be_so() -> None:
    same = files(lambda x: x)
    assert prove_accuracy(same, Rules("int8"), samples(np.where(ROWS > 2, np.inf, 1.0)))


def test_a_converted_file_that_fails_is_refused_and_samples_that_fp32_cannot_take_are_wrong() -> (
    None
):
    def fails(_arrays: Mapping[str, Array]) -> Sequence[Array]:
        raise ModelFails("no kernel")

    good = runner(lambda x: x)
    cases: list[tuple[Runner, Runner, type[MmctlError]]] = [
        (fails, good, Refused),
        (good, fails, InputError),
    ]
    for variant, fp32, kind in cases:
        with pytest.raises(kind, match="fails on held-out samples: no kernel"):
            measure(Files(variant, fp32, ["y"], True, 8), Rules("int8"), samples())


def test_batches_are_as_large_as_they_may_be() -> None:
    seen = []
    measure(files(lambda x: seen.append(len(x)) or x, max_batch=64), Rules("int8"), samples())
    assert seen == [64, 64, 64, 8]


def test_without_a_batch_axis_each_sample_is_a_row() -> None:
    each = [Sample({"x": row}, {"": np.array(row.argmax())}) for row in ROWS]
    rules = Rules("int8", metric="accuracy")
    (found,) = measure(files(lambda x: x, batched=False, max_batch=0), rules, each)
    assert (found.metric, found.fp32, found.found.rows) == ("accuracy", 1.0, 200)


def test_the_batch_law_is_measured_at_the_largest_batch_too() -> None:
    assert prove_batch_law(files(lambda x: x), samples(), 0.01) == {
        "gate": "batch law",
        "batches": [1, 2, 3, 16],
        "max_difference": 0.0,
        "limit": 0.01,
    }


@pytest.mark.parametrize(("share", "is_refused"), [(0.001, False), (0.5, True)])
def test_rows_may_change_with_their_batch_as_far_as_the_precision_makes_them(
    share: float, is_refused: bool
) -> None:
    def scaled_by_batch(x: Array) -> Array:
        return x + share * x.max()

    if not is_refused:
        found = prove_batch_law(files(scaled_by_batch), samples(), 0.01)
        assert 0 < found["max_difference"] < 0.01
        return
    with pytest.raises(Refused, match=r"rows change with their batch: `y` differs by 0\.\d+"):
        prove_batch_law(files(scaled_by_batch), samples(), 0.01)


# A whole conversion. The FP32 file is y = x @ w; the stage below only changes w.

NEURONS = 256
WEIGHTS = np.random.default_rng(1).standard_normal((NEURONS, NEURONS)).astype(np.float32)
SAMPLES = f"""
def made(seed, count):
    rows = np.random.default_rng(seed).standard_normal((count, {NEURONS}))
    return rows.astype(np.float32)


def calibration():
    yield {{"x": made(1, 16)}}


def held_out():
    yield {{"x": made(2, 60)}}


def labelled():
    rows = made(2, 200)
    w = np.random.default_rng(1).standard_normal(({NEURONS}, {NEURONS})).astype(np.float32)
    yield {{"inputs": {{"x": rows}}, "labels": (rows @ w).argmax(1)}}
"""
YAML = "source: {onnx: net.onnx}\nprecision: int8\n"
HELD_OUT = "verify: {calibration: 'data:calibration', data: 'data:held_out'}\n"


def linear(weights: Array, times: int = 1) -> bytes:
    """`times` says how much work is done for the same answer."""
    shape = ("FLOAT", ["N", NEURONS])
    names = ["x", *(f"h{i}" for i in range(times - 1)), "y"]
    nodes: list[Any] = [("MatMul", ["x", "w"], [names[1]], {})]
    for before, after in pairwise(names[1:]):
        nodes.append(("MatMul", [before, "one"], [after], {}))
    constants = {"w": weights, "one": np.eye(NEURONS, dtype=np.float32)}
    return onnx_model({"x": shape}, {"y": shape}, nodes, constants)


@dataclass(frozen=True)
class Swap:
    """Converts by writing what it was told to."""

    content: bytes
    title: str = "INT8, swapped"
    libraries: tuple[str, ...] = ()
    needs_data: bool = False

    def convert(self, conversion: Conversion) -> Mapping[str, Any]:
        import onnx

        assert conversion.source.is_file()
        assert not list(conversion.work.iterdir())
        (conversion.work / "left behind").write_text("by a converter")
        return finish(conversion, onnx.load_from_string(self.content), "swap", {})


SLOW, FAST = linear(WEIGHTS, times=6), linear(WEIGHTS)


@dataclass
class Here:
    root: Path

    def lower(self, content: bytes, yaml: str = HELD_OUT, **more: Any) -> list[Evidence]:
        """The slow file becomes `content`."""
        space = write_model(self.root, "net", YAML + yaml, net_onnx=SLOW)
        write_samples(self.root, "data", SAMPLES)
        more.setdefault("plan", lambda *_: (("model.onnx", Swap(content)),))
        return lower_here(space, "net", SLOW, self.out, **more)

    @property
    def out(self) -> Path:
        return self.root / "out"


@pytest.fixture
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Here(workspace)


def test_a_faster_file_with_the_same_answers_takes_the_place(here: Here) -> None:
    evidence = here.lower(FAST)
    assert [gate["gate"] for gate in evidence] == ["conversion", "accuracy", "batch law", "speed"]
    assert {gate["file"] for gate in evidence} == {"model.onnx"}
    assert evidence[3]["ratios"][0]["cpu"] < 0.95
    assert [path.name for path in here.out.iterdir()] == ["model.onnx"]
    assert (here.out / "model.onnx").stat().st_size < len(SLOW) + 1000


def test_wrong_answers_are_refused_before_speed_is_asked(here: Here) -> None:
    with pytest.raises(Refused, match=r"^INT8, swapped: cosine of `y` with FP32 is") as caught:
        here.lower(linear(-WEIGHTS), force=True)
    assert "exclude_nodes" in str(caught.value.hint)
    assert "static, dynamic" in str(caught.value.hint)


def test_a_slower_file_is_refused(here: Here) -> None:
    with pytest.raises(Refused, match=r"not faster than FP32 on this CPU: it takes \d") as caught:
        here.lower(linear(WEIGHTS, times=12))
    assert "`--force`" in str(caught.value.hint)


def test_force_accepts_it_and_the_lock_says_so(here: Here) -> None:
    speed = here.lower(linear(WEIGHTS, times=12), force=True)[-1]
    assert (speed["gate"], speed["forced"]) == ("speed", True)
    assert speed["warning"].startswith("not faster: it takes")


def half(*_: Any) -> Planned:
    return (("model.fp16.onnx", Swap(SLOW, title="FP16")),)


def test_fp16_without_a_gpu_says_that_cpus_have_no_kernels_for_it(here: Here) -> None:
    with pytest.raises(Refused, match=r"^FP16: .*; CPUs have no FP16 kernels, and no target"):
        here.lower(SLOW, plan=half)


def test_fp16_for_a_target_with_gpus_lies_beside_fp32_and_is_not_called_fast(here: Here) -> None:
    (here.root / "mmctl.yaml").write_text("targets: {big: {url: 'h:1', gpus: 1}}\n")
    evidence = here.lower(SLOW, plan=half)
    assert evidence[-1] == {
        "gate": "speed",
        "hardware": "gpu",
        "not_measured": "no GPU here",
        "file": "model.fp16.onnx",
    }
    assert sorted(path.name for path in here.out.iterdir()) == ["model.fp16.onnx", "model.onnx"]
    assert (here.out / "model.onnx").read_bytes() == SLOW


def test_what_the_lock_proves_is_not_measured_again(here: Here) -> None:
    here.lower(FAST)
    known = {"model.onnx": sha256_file(here.out / "model.onnx")}
    assert [gate["gate"] for gate in here.lower(FAST, known=known)] == ["conversion"]
    other = [gate["gate"] for gate in here.lower(FAST, known={"model.onnx": "of other bytes"})]
    assert other == ["conversion", "accuracy", "batch law"]


FLOOR = """\
source: {onnx: net.onnx}
verify: {data: "data:labelled", metric: accuracy, min: 0.9}
"""


def test_labels_find_a_model_that_was_damaged_before_its_export(here: Here) -> None:
    write_samples(here.root, "data", SAMPLES)
    space = write_model(here.root, "net", FLOOR, net_onnx=linear(WEIGHTS))
    model, path = read_model(space, "net"), space.models / "net" / "net.onnx"
    (evidence,) = prove_floor(model, path)
    assert (evidence["metric"], evidence["value"]) == ("accuracy", 1.0)
    path.write_bytes(linear(WEIGHTS[::-1].copy()))
    with pytest.raises(Refused, match=r"accuracy of `y` is 0 \(95 %: 0 to .*the limit is 0.9"):
        prove_floor(model, path)


def test_texts_are_judged_by_the_users_choice(here: Here) -> None:
    pytest.importorskip("sacrebleu")
    words = np.array(["yes it is", "no it is not at all", "perhaps it may be so"], object)

    def answers(order: list[int]) -> bytes:
        return onnx_model(
            {"x": ("INT64", ["N"])},
            {"said": ("STRING", ["N"])},
            [("Gather", ["words", "x"], ["said"], {})],
            {"words": words[order]},
        )

    yaml = "source: {onnx: net.onnx}\nprecision: int8\nverify: {data: 'data:words', metric: bleu}\n"
    space = write_model(here.root, "net", yaml, net_onnx=answers([0, 1, 2]))
    write_samples(here.root, "data", "def words(): yield {'x': np.arange(60) % 3}\n")
    with pytest.raises(Refused, match=r"bleu of `said` with FP32 is 0.\d+ .*the limit is 0.95"):
        lower_here(
            space,
            "net",
            answers([0, 1, 2]),
            here.out,
            plan=lambda *_: (("model.onnx", Swap(answers([1, 0, 2]))),),
        )


def test_nothing_stays_of_a_refusal(here: Here) -> None:
    with pytest.raises(Refused):
        here.lower(linear(-WEIGHTS))
    assert not list(here.out.glob(".*")), "the caller removes the rest with the folder"


def test_stages_are_asked_with_one_row(here: Here) -> None:
    asked: list[Any] = []

    def plan(*what: Any) -> Any:
        asked.extend(what)
        return (("model.onnx", Swap(FAST)),)

    here.lower(FAST, plan=plan)
    assert asked[0] == "int8"
    assert asked[3]["x"].shape == (1, NEURONS)
