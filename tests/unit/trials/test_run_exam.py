"""Which questions a model is asked, and what its answers show. The model is a Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from mmctl.diagnostics import Severity
from mmctl.tensors import Array, Signature, TensorSpec, TensorType, dtype_from_triton
from mmctl.trials.runcheck.asker import Asker
from mmctl.trials.runcheck.exam import examine
from mmctl.trials.runcheck.model import Model, Step, with_steps
from mmctl.trials.runcheck.questions import Fate, Question, Reply
from mmctl.trials.runcheck.remarks import Remark
from mmctl.trials.runcheck.rows import Values
from mmctl.trials.runcheck.run import drive

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def spec(text: str) -> TensorSpec:
    """`name TYPE dims`; `name?` is optional."""
    name, kind, *dims = text.split()
    tensor = TensorType(dtype_from_triton(kind), tuple(map(int, dims)))
    return TensorSpec(name.rstrip("?"), tensor, name.endswith("?"))


def model(
    inputs: str = "x FP32 4", outputs: str = "y FP32 4", max_batch: int = 4, **more: object
) -> Model:
    signature = Signature(
        tuple(map(spec, inputs.split(", "))), tuple(map(spec, outputs.split(", "))), max_batch
    )
    return Model("m", signature, **more)  # type: ignore[arg-type]


class Fake:
    """Answers with a function; what that raises is a refusal, or the reply itself."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[Question]()

    def __call__(self, question: Question) -> Reply:
        self.asked.append(question)
        try:
            outputs = self.answer(question.inputs)
        except Ends as end:
            return end.reply
        except Exception as error:  # noqa: BLE001 - whatever the model does is a refusal
            return Reply(Fate.REFUSED, text=f"model `m`: {type(error).__name__}: {error}")
        names = question.outputs or tuple(outputs)
        return Reply(Fate.ANSWERED, ({name: outputs[name] for name in names},))


class Ends(Exception):
    def __init__(self, fate: Fate, text: str) -> None:
        super().__init__(text)
        self.reply = Reply(fate, text=text)


def shown(
    answer: Answer,
    asked: Model | None = None,
    own: Sequence[Values] = (),
    earlier: Mapping[str, Sequence[str]] | None = None,
    away: Sequence[str] = (),
) -> list[tuple[str, Severity]]:
    return [(r.code, r.severity) for r in remarks(answer, asked, own, earlier, away)[0]]


def remarks(
    answer: Answer,
    asked: Model | None = None,
    own: Sequence[Values] = (),
    earlier: Mapping[str, Sequence[str]] | None = None,
    away: Sequence[str] = (),
) -> tuple[list[Remark], Fake]:
    asker, fake = Asker(asked or model(), earlier or {}, away), Fake(answer)
    drive(examine(asker, own), fake)
    return asker.remarks, fake


def echo(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    return {"y": inputs["x"]}


def test_a_model_that_is_right_is_asked_alone_in_pairs_and_with_all_it_takes() -> None:
    found, fake = remarks(echo)
    assert found == []
    assert {len(question.inputs["x"]) for question in fake.asked} == {1, 2, 4}


def test_questions_are_the_same_in_every_run() -> None:
    first, second = remarks(echo)[1].asked, remarks(echo)[1].asked
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.inputs["x"], other.inputs["x"])


def test_a_model_without_batches_is_asked_without_the_axis() -> None:
    found, fake = remarks(echo, model(max_batch=0))
    assert found == []
    assert {question.inputs["x"].shape for question in fake.asked} == {(4,)}


def refuse_when(condition: Callable[[Array], object]) -> Answer:
    def answer(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if condition(inputs["x"]):
            raise ValueError("no")
        return echo(inputs)

    return answer


def rng_answer() -> Answer:
    rng = np.random.default_rng(0)
    return lambda i: {"y": rng.standard_normal(i["x"].shape).astype(np.float32)}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(lambda i: {"y": i["x"][0]}, [("P001", ERROR)], id="no batch axis"),
        pytest.param(lambda i: {}, [("P001", ERROR)], id="nothing"),
        pytest.param(refuse_when(lambda x: len(x) > 1), [("M006", ERROR)], id="one row only"),
        pytest.param(refuse_when(lambda x: len(x) == 4), [("M006", ERROR)], id="not the maximum"),
        pytest.param(refuse_when(lambda x: len(x) % 2), [("M006", ERROR)], id="pairs only"),
        pytest.param(lambda i: {"y": i["x"] - i["x"].mean(0)}, [("M009", ERROR)], id="mates"),
        pytest.param(
            lambda i: {"y": i["x"] + np.float32(1e-3) * i["x"].mean(0)},
            [("M009", WARNING)],
            id="mates a little",
        ),
        pytest.param(lambda i: {"y": i["x"].astype(float)}, [("P001", ERROR)], id="float64"),
        pytest.param(rng_answer(), [("P007", INFO)], id="chance"),
        pytest.param(refuse_when(lambda x: True), [("P002", INFO)], id="refuses all"),
        pytest.param(refuse_when(lambda x: (x < 0).any()), [], id="takes what is not negative"),
        pytest.param(refuse_when(lambda x: (x != 1).any()), [], id="takes ones"),
        pytest.param(lambda i: {"y": i["x"] * np.float32("nan")}, [], id="NaN is NaN"),
    ],
)
def test_what_answers_show(answer: Answer, expected: list[tuple[str, Severity]]) -> None:
    assert shown(answer) == expected


def test_a_row_that_is_refused_alone_says_nothing_of_batches() -> None:
    first = remarks(echo)[1].asked[0].inputs["x"]
    assert shown(refuse_when(lambda x: not np.isin(x, first).all())) == []


def test_an_answer_that_changes_once_in_a_while_is_chance() -> None:
    calls = iter(range(1000))

    def answer(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": inputs["x"] + np.float32(next(calls) // 6)}

    assert shown(answer) == [("P007", INFO)]


@pytest.mark.parametrize(
    ("fate", "text", "code", "told"),
    [
        (Fate.LATE, "no answer within 10 s", "P005", "no answer within 10 s to generated values"),
        (Fate.SERVER_DIED, "Triton died", "P004", "the server died of generated values (1 row)"),
        (Fate.PROCESS_DIED, "Stub process 'm_0_0' is not healthy.", "P004", "its process died"),
        (Fate.PROCESS_DIED, "Stub process 'other_0_0' is not healthy.", "P004", "of `other` died"),
    ],
)
def test_what_spoils_the_server_ends_the_questions(
    fate: Fate, text: str, code: str, told: str
) -> None:
    def answer(_: Mapping[str, Array]) -> Mapping[str, Array]:
        raise Ends(fate, text)

    (remark,), fake = remarks(answer)
    assert (remark.code, remark.severity) == (code, ERROR)
    assert told in remark.message
    assert len(fake.asked) == 1


def test_what_hangs_at_one_length_of_a_free_axis_says_so() -> None:
    def answer(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if inputs["x"].shape[1] == 8:
            raise Ends(Fate.LATE, "no answer within 10 s")
        return echo(inputs)

    (remark,), _ = remarks(answer, model("x FP32 -1", "y FP32 -1"))
    assert remark.message.endswith("to generated values (1 row, free axes of length 8)")


def test_optional_inputs_are_sent_and_left_out() -> None:
    optional = model("x FP32 4, z? FP32 4")

    def needs_z(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": inputs["x"] + inputs["z"]}

    def refuses_z(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if "z" in inputs:
            raise ValueError("no")
        return echo(inputs)

    assert shown(echo, optional) == []
    assert shown(needs_z, optional) == [("P002", WARNING)]
    assert shown(refuses_z, optional) == [("P002", INFO)]


def test_free_axes_are_tried_with_several_lengths() -> None:
    free = model("x FP32 -1", "y FP32 -1")
    found, fake = remarks(echo, free)
    assert found == []
    assert {question.inputs["x"].shape[1] for question in fake.asked} == {1, 2, 4, 8}
    (remark,), _ = remarks(refuse_when(lambda x: x.shape[1] < 4), free)
    assert (remark.code, remark.severity) == ("E017", INFO)
    assert "free axes of length 1 and 2 fail, 4 and 8 work" in remark.message
    assert shown(refuse_when(lambda x: x.shape[1] != 64), free) == []


def test_a_sequence_has_a_start_and_an_end() -> None:
    found, fake = remarks(echo, model(sequences="text"))
    assert found == []
    assert {len(question.inputs["x"]) for question in fake.asked} == {1}
    last = [dict(question.parameters) for question in fake.asked[-3:]]
    assert [(p["sequence_start"], p["sequence_end"]) for p in last] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert len({p["sequence_id"] for p in last}) == 1
    assert isinstance(last[0]["sequence_id"], str)


def test_a_type_that_numpy_has_not_is_not_asked() -> None:
    found, fake = remarks(echo, model("x BF16 4"))
    assert [(r.code, r.severity) for r in found] == [("P006", INFO)]
    assert fake.asked == []


# ---------------------------------------------------------------- ensembles

STEPS = (Step("a", {"x": "x"}, {"h": "t"}), Step("b", {"h": "t"}, {"y": "y"}))
INNER = {
    "a": replace(model("x FP32 -1", "h FP32 -1"), name="a"),
    "b": replace(model("h FP32 13", "y FP32 -1"), name="b"),
}


def ensemble(inputs: str = "x FP32 4", outputs: str = "y FP32 4") -> Model:
    return with_steps(model(inputs, outputs, steps=STEPS), INNER)


def refuses(text: str, condition: Callable[[Array], object] = lambda _: True) -> Answer:
    def answer(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if condition(inputs["x"]):
            raise Ends(Fate.REFUSED, f"model `m`: in ensemble 'm', {text}")
        return echo(inputs)

    return answer


SHAPE = "unexpected shape for input 'h' for model 'b'. Expected [-1,8], got [1,4]. NOTE: Setting"
JOIN = "[request id: <id_unknown>] input 'h' batch size does not match other inputs for 'b'"
MISSING = (
    "expected 2 inputs but got 1 inputs for model 'b'. Got input(s) ['g'], but missing required "
    "input(s) ['h']. Please provide all required input(s)."
)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (SHAPE, "E017", "step `b` takes `h` as [-1,8] and gets [1,4]"),
        (JOIN, "E015", "step `b` gets `h` with another number of rows"),
        (MISSING, "P001", "step `b` gets no `h`: `a` does not return its output `h`"),
        ("unexpected deadlock, at least one output", "P001", "a step leaves out an output"),
    ],
)
def test_how_steps_fail_to_fit_is_an_error_whatever_the_values(
    text: str, code: str, told: str
) -> None:
    (remark,), _ = remarks(refuses(text), ensemble())
    assert (remark.code, remark.severity) == (code, ERROR)
    assert told in remark.message


def test_what_fits_at_one_length_only_is_a_warning() -> None:
    free = ensemble("x FP32 -1", "y FP32 -1")
    (remark,), _ = remarks(refuses(SHAPE, lambda x: x.shape[1] != 13), free)
    assert (remark.code, remark.severity) == ("E017", WARNING)
    assert "free axes of length 1, 2, 4 and 8 fail, 13 work" in remark.message


def test_what_fails_inside_a_step_names_it() -> None:
    text = "Failed to process the request(s) for model 'b_0', message: ValueError: no"
    (remark,), _ = remarks(refuses(text), ensemble())
    assert (remark.code, remark.severity) == ("P002", INFO)
    assert "generated values are refused in step `b`: ValueError: no" in remark.message


def test_each_output_of_an_ensemble_is_asked_for_alone() -> None:
    two = ensemble(outputs="y FP32 4, z FP32 4")

    def both(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": inputs["x"], "z": inputs["x"]}

    assert shown(both, two) == []
    asker, fake = Asker(two, {}), Fake(both)

    def no_subset(question: Question) -> Reply:
        if question.outputs:
            return Reply(Fate.REFUSED, text="model `m`: unexpected deadlock, at least one output")
        return fake(question)

    drive(examine(asker), no_subset)
    assert [(r.code, r.severity, r.at) for r in asker.remarks] == [
        ("E019", WARNING, ("output", "y"))
    ]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(lambda i: {"y": i["x"][:, :3]}, "P001", id="outputs"),
        pytest.param(refuse_when(lambda x: len(x) > 1), "M006", id="batches"),
        pytest.param(lambda i: {"y": i["x"] - i["x"].mean(0)}, "M009", id="mates"),
        pytest.param(rng_answer(), "P007", id="chance"),
    ],
)
def test_what_a_step_was_blamed_for_is_not_told_again(answer: Answer, code: str) -> None:
    assert [found for found, _ in shown(answer, ensemble())] == [code]
    assert shown(answer, ensemble(), earlier={"b": [code]}) == []


def test_calls_of_models_that_do_not_run_here_are_not_the_callers_fault() -> None:
    text = "Model work - Error when running inference: Model 'work' is not ready."
    assert shown(refuses(text)) == [("P002", ERROR)]
    assert shown(refuses(text), away=["work"]) == [("P006", INFO)]


# ---------------------------------------------------------------- values of the user


def own_values(value: float) -> Values:
    return Values("sample `s`", lambda _: {"x": np.full(4, value, np.float32)}, own=True)


def test_values_of_the_user_come_first_and_must_be_taken() -> None:
    sevens = refuse_when(lambda x: (x != 7).any())
    found, fake = remarks(sevens, own=[own_values(7)])
    assert found == []
    assert all((question.inputs["x"] == 7).all() for question in fake.asked)
    assert shown(sevens, own=[own_values(6)]) == [("P002", ERROR)]
