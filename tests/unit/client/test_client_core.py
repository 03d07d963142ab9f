"""What the core decides, with a world that is a table: no server, no threads, no waiting."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from mmctl.cache.cache import Cache
from mmctl.cache.keys import Identity
from mmctl.client.batches import rows_of
from mmctl.client.core import SOON_S, STALE_S, Call, Core, merged
from mmctl.client.description import Candidacy, Description
from mmctl.client.effects import Describe, Gather, Infer, Mirror, Seek
from mmctl.client.status import NotFoundError
from mmctl.effects import Steps, T, drive
from mmctl.errors import InferenceError, InputError, LateError, MmctlError
from mmctl.inference import InferRequest, InferResponse, InferResult
from mmctl.tensors import Signature, TensorSpec, parse_type

SIGNATURE = Signature(
    (TensorSpec("x", parse_type("fp32")),),
    tuple(TensorSpec(name, parse_type("fp32")) for name in ("y", "z")),
    max_batch=4,
)
ONE = Description(SIGNATURE, Identity("m", "1", "d1"))


@dataclass
class World:
    """A server that answers y = 2x and z = 3x; `version` is the one that does. Its models are
    `models`; it fails with `failure` where a row is below 0.
    """

    models: dict[str, Description] = field(default_factory=lambda: {"m": ONE})
    candidacy: Candidacy = field(default_factory=Candidacy)
    version: Callable[[int], str] = lambda _: "1"
    failure: MmctlError = field(default_factory=lambda: InferenceError("model `m`: boom"))
    now: float = 100.0
    asked: list[InferRequest] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)
    mirrored: list[InferRequest] = field(default_factory=list)
    described: list[tuple[str, bool]] = field(default_factory=list)

    def do(self, steps: Steps[T]) -> T:
        return drive(steps, self.perform)

    def perform(self, effect: Any) -> Any:
        match effect:
            case Infer(request, limit):
                self.limits.append(limit)
                return self.infer(request)
            case Describe(model, _, identify):
                self.described.append((model, identify))
                if model not in self.models:
                    raise InputError(f"no model `{model}`")
                return self.models[model]
            case Seek():
                return self.candidacy
            case Mirror(requests):
                return self.mirrored.extend(requests)
            case Gather(several):
                return [self._end_of(steps) for steps in several]

    def infer(self, request: InferRequest) -> InferResponse:
        self.asked.append(request)
        x = request.inputs["x"]
        if request.model not in self.models:
            raise NotFoundError(f"model `{request.model}`: unknown")
        if (x < 0).any():
            raise self.failure
        outputs = {"z": 3 * x, "y": 2 * x}
        wanted = {name: outputs[name] for name in request.outputs or outputs}
        return InferResponse(wanted, request.model, self.version(len(self.asked)))

    def _end_of(self, steps: Steps[Any]) -> Any:
        try:
            return self.do(steps)
        except MmctlError as error:
            return error


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def core(world: World) -> Core:
    return Core(clock=lambda: world.now)


@pytest.fixture
def keeping(world: World) -> Core:
    """With a cache."""
    return Core(Cache(tenant="shop"), clock=lambda: world.now)


def ask(world: World, core: Core, x: object = 1, **more: Any) -> InferResult:
    return world.do(core.infer(Call("m", {"x": x}, **more)))


def values(result: InferResult, name: str = "y") -> list[float]:
    return [float(value) for value in result.outputs[name].ravel()]


# ---------------------------------------------------------------- rows


def test_rows_beyond_the_models_batch_go_in_parts_and_come_back_in_order(
    world: World, core: Core
) -> None:
    answer = ask(world, core, range(10))
    assert values(answer) == [2 * n for n in range(10)]
    assert [rows_of(request) for request in world.asked] == [4, 4, 2]
    assert (answer.model, answer.version) == ("m", "1")


def test_a_failed_part_fails_the_call_and_its_rows_are_told(world: World, core: Core) -> None:
    with pytest.raises(InferenceError) as caught:
        ask(world, core, [*range(6), -1, 7, 8, 9])
    assert str(caught.value) == "rows 5 to 8 of 10: model `m`: boom"
    assert len(world.asked) == 3


def test_the_error_of_a_part_keeps_its_kind_and_hint(world: World, core: Core) -> None:
    world.failure = NotFoundError("gone", hint="look")
    with pytest.raises(NotFoundError, match="rows 1 to 4 of 5: gone") as caught:
        ask(world, core, [-1] * 5)
    assert caught.value.hint == "look"


def test_parts_that_two_versions_answered_are_asked_once_more(world: World, core: Core) -> None:
    world.version = lambda count: "1" if count == 1 else "2"
    assert ask(world, core, range(6)).version == "2"
    assert len(world.asked) == 4


def test_answers_of_two_versions_are_never_joined(world: World, core: Core) -> None:
    world.version = lambda count: str(count % 2)
    with pytest.raises(InferenceError, match="rows 5 to 6 of 6: version 0 answered"):
        ask(world, core, range(6))


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"y": np.zeros((1, 1))}, r"rows 5 to 6 of 6: output `y` has shape \[1, 1\]"),
        ({"y": np.zeros((2, 3))}, r"output `y` has shape \[2, 3\], and \[2, 1\] is what joins"),
        ({"w": np.zeros((2, 1))}, "other outputs than for the first rows"),
    ],
    ids=["other rows", "other shape", "other outputs"],
)
def test_answers_that_do_not_fit_together_are_told(
    world: World, core: Core, monkeypatch: pytest.MonkeyPatch, odd: Any, message: str
) -> None:
    def answer(request: InferRequest) -> InferResponse:
        rows = rows_of(request)
        return InferResponse({"y": np.zeros((4, 1))} if rows == 4 else odd, "m", "1")

    monkeypatch.setattr(world, "infer", answer)
    with pytest.raises(InferenceError, match=message):
        ask(world, core, range(6))


def test_a_model_without_a_batch_axis_takes_all_at_once(world: World, core: Core) -> None:
    world.models["m"] = replace(
        ONE, signature=Signature((TensorSpec("x", parse_type("fp32[-1]")),), (), 0)
    )
    ask(world, core, range(10))
    assert [request.inputs["x"].shape for request in world.asked] == [(10,)]


# ---------------------------------------------------------------- outputs


def test_an_ensemble_is_asked_for_all_outputs_and_the_rest_is_dropped(
    world: World, core: Core
) -> None:
    world.models["m"] = replace(ONE, ensemble=True)
    answer = ask(world, core, range(6), outputs=["y"])
    assert list(answer.outputs) == ["y"]
    assert {request.outputs for request in world.asked} == {()}


def test_other_models_are_asked_for_what_is_wanted(world: World, core: Core) -> None:
    assert list(ask(world, core, outputs=["y"]).outputs) == ["y"]
    assert world.asked[0].outputs == ("y",)


def test_what_a_pipeline_tells_of_its_nodes_is_parsed_row_by_row(
    world: World, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = np.array([[b'{"a": {"outcome": "ran"}}'], [b"not JSON"]], object)
    answer = InferResponse({"provenance": texts}, "m", "1")
    monkeypatch.setattr(world, "infer", lambda _: answer)
    bare = TensorSpec("provenance", parse_type("bytes"))
    world.models["m"] = replace(ONE, signature=replace(SIGNATURE, outputs=(bare,)))
    came = ask(world, core)
    assert came.provenance == [{"a": {"outcome": "ran"}}, "not JSON"]
    assert json.loads(came.outputs["provenance"][0, 0]) == {"a": {"outcome": "ran"}}


# ---------------------------------------------------------------- kinds of models


def test_a_decoupled_model_is_for_streams(world: World, core: Core) -> None:
    world.models["m"] = replace(ONE, decoupled=True)
    with pytest.raises(InputError, match="any number of answers") as caught:
        ask(world, core)
    assert "client.stream('m', ...)" in str(caught.value.hint)
    assert not world.asked


def test_a_stateful_model_is_for_sequences_and_its_rows_stay_together(
    world: World, core: Core
) -> None:
    world.models["m"] = replace(ONE, stateful=True)
    with pytest.raises(InputError, match="stateful") as caught:
        ask(world, core)
    assert "client.sequence('m')" in str(caught.value.hint)
    assert ask(world, core, parameters={"sequence_id": 7}).version == "1"
    with pytest.raises(InputError, match="5 rows given"):
        ask(world, core, range(5), parameters={"sequence_id": 7})


def test_a_model_whose_own_cache_mixes_requests_up_is_warned_of_once(
    world: World, core: Core
) -> None:
    world.models["m"] = replace(ONE, mixes_up=True)
    with pytest.warns(RuntimeWarning, match="model `m`: Triton's own response cache is on"):
        ask(world, core)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(world, core, version="1")


def test_inputs_come_by_name_or_by_keyword_and_never_twice() -> None:
    assert merged(None, {"x": 1}) == merged({"x": 1}, {}) == {"x": 1}
    assert merged({"x": 1}, {"y": 2}) == {"x": 1, "y": 2}
    assert merged(None, {}) == {}
    with pytest.raises(InputError, match="`x` is given twice"):
        merged({"x": 1}, {"x": 2})


# ---------------------------------------------------------------- time


def test_the_server_is_told_how_long_it_may_take(world: World, core: Core) -> None:
    ask(world, core, timeout_s=1.5)
    assert world.limits == [1.5]
    assert world.asked[0].parameters == {"timeout": 1_500_000}


def test_what_was_spent_before_is_not_there_any_more(
    world: World, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(_: Any) -> Any:
        world.now += 1
        return ONE

    monkeypatch.setattr(world, "models", {"m": ONE})
    plain = world.perform
    monkeypatch.setattr(
        world, "perform", lambda e: describe(e) if isinstance(e, Describe) else plain(e)
    )
    ask(world, core, timeout_s=1.5)
    assert world.limits == [0.5]


def test_a_timeout_of_the_callers_own_goes_as_it_is(world: World, core: Core) -> None:
    ask(world, core, timeout_s=1.5, parameters={"timeout": 7})
    assert world.asked[0].parameters == {"timeout": 7}
    ask(world, core)
    assert (world.limits[1], world.asked[1].parameters) == (None, {})


def test_who_is_late_is_told_the_time_that_was_allowed(world: World, core: Core) -> None:
    world.failure = LateError("no answer within 1.2345 s", hint="wait")
    with pytest.raises(LateError, match=r"^model `m`: no answer within 1\.5 s$") as caught:
        ask(world, core, -1, timeout_s=1.5)
    assert caught.value.hint == "wait"


# ---------------------------------------------------------------- shadows


def shadowed(world: World, core: Core, requests: Sequence[dict[str, Any]]) -> int:
    world.candidacy = Candidacy(shadow=50)
    for options in requests:
        ask(world, core, **options)
    return len(world.mirrored)


def test_a_shadow_gets_copies_of_its_share_and_answers_nobody(world: World, core: Core) -> None:
    copies = shadowed(world, core, [{"key": str(n)} for n in range(200)])
    assert 70 < copies < 130
    assert {request.model for request in world.mirrored} == {"m__next"}
    assert {request.model for request in world.asked} == {"m"}


def test_equal_keys_are_copied_or_not(world: World, core: Core) -> None:
    assert shadowed(world, core, [{"key": "a"}] * 20) in (0, 20)


@pytest.mark.parametrize("options", [{"version": "1"}, {"parameters": {"sequence_id": 7}}])
def test_what_is_meant_for_one_model_is_not_copied(
    world: World, core: Core, options: dict[str, Any]
) -> None:
    assert shadowed(world, core, [{"key": str(n), **options} for n in range(20)]) == 0


# ---------------------------------------------------------------- with a cache


def test_an_answer_is_given_again_and_says_so(world: World, keeping: Core) -> None:
    levels = [ask(world, keeping, x).cache.level for x in (1, 1, 2)]
    assert levels == ["none", "exact", "none"]
    assert len(world.asked) == 2
    assert values(ask(world, keeping, 1)) == [2]


def test_without_a_cache_the_model_runs(world: World, core: Core) -> None:
    assert [ask(world, core).cache.level for _ in range(2)] == ["none", "none"]


def test_no_store_and_tenants_are_passed_on(world: World, keeping: Core) -> None:
    ask(world, keeping)
    assert ask(world, keeping, no_store=True).cache.level == "bypass"
    assert ask(world, keeping, tenant="other").cache.level == "none"
    assert ask(world, keeping).cache.level == "exact"


def test_headers_of_a_client_are_part_of_what_it_asks(world: World) -> None:
    """Triton can hand them to a model; those that let somebody steer Triton it never does."""
    cache = Cache(tenant="shop")

    def level(**headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(world, Core(cache, lambda: world.now, named)).cache.level

    assert level(authorization="alice") == "none"
    assert level(authorization="bob") == "none"
    assert level(Authorization="alice") == "exact"
    assert level() == "none"
    assert level(triton_grpc_protocol_mmctl_key="k", user_agent="me") == "exact"
    assert all(not request.headers for request in world.asked)


def test_a_request_of_a_sequence_is_never_answered_from_the_cache(
    world: World, keeping: Core
) -> None:
    world.models["m"] = replace(ONE, stateful=True)
    levels = [ask(world, keeping, parameters={"sequence_id": 7}).cache.level for _ in range(2)]
    assert levels == ["bypass", "bypass"]


def test_a_cache_must_know_who_answers(world: World, core: Core, keeping: Core) -> None:
    ask(world, core)
    ask(world, keeping)
    assert world.described == [("m", False), ("m", True)]


def test_a_reloaded_model_is_seen_in_a_second(world: World, keeping: Core) -> None:
    ask(world, keeping)
    world.models["m"] = replace(ONE, identity=Identity("m", "1", "d2"))
    world.now += SOON_S - 0.1
    assert ask(world, keeping).cache.level == "exact"
    world.now += 0.2
    assert ask(world, keeping).cache.level == "none"
    assert len(world.described) == 2


def test_one_caller_asks_in_time_and_the_others_go_on_until_it_must_be(
    world: World, keeping: Core
) -> None:
    ask(world, keeping)
    world.now += SOON_S + 0.1
    first = keeping.infer(Call("m", {"x": 1}))
    assert isinstance(next(first), Describe)
    assert ask(world, keeping).cache.level == "exact"
    assert len(world.described) == 1
    world.now += STALE_S - SOON_S
    ask(world, keeping)
    assert len(world.described) == 2


def test_what_another_version_answered_is_not_kept_and_the_server_asked_again(
    world: World, keeping: Core
) -> None:
    world.version = lambda _: "2"
    ask(world, keeping)
    world.models["m"] = replace(ONE, identity=Identity("m", "2", "d2"))
    assert ask(world, keeping).cache.level == "none"
    assert ask(world, keeping).cache.level == "exact"
    assert [model for model, _ in world.described] == ["m", "m"]


def test_a_candidate_has_answers_of_its_own(world: World, keeping: Core) -> None:
    ask(world, keeping)
    world.models["m__next"] = replace(ONE, identity=Identity("m__next", "1", "d2"))
    world.candidacy, world.now = Candidacy(share=100), world.now + 10
    seen = [(ask(world, keeping).model, ask(world, keeping).cache.level) for _ in range(2)]
    assert seen == [("m__next", "exact"), ("m__next", "exact")]
    assert [request.model for request in world.asked] == ["m", "m__next"]


def test_where_nobody_says_what_a_candidate_is_the_live_model_answers(
    world: World, keeping: Core
) -> None:
    world.candidacy = Candidacy(share=100)
    assert [ask(world, keeping, x).model for x in (1, 2)] == ["m", "m"]


def test_only_what_the_model_is_asked_is_copied(world: World, keeping: Core) -> None:
    world.candidacy = Candidacy(shadow=100)
    for _ in range(3):
        ask(world, keeping)
    assert len(world.mirrored) == 1
