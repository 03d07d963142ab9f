"""What a client learns of a model from its config, over a real gRPC wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_triton import FakeTriton, config, running

from mmctl.client.description import Candidacy, Description
from mmctl.client.transport import AsyncGrpcTransport, GrpcTransport
from mmctl.triton.repository import digests_of

Describe = Callable[..., Description]


@pytest.fixture
def server() -> Iterator[FakeTriton]:
    with running(FakeTriton()) as fake:
        yield fake


def describe(server: FakeTriton, **options: Any) -> Description:
    with GrpcTransport(server.address) as transport:
        return transport.describe("echo", **options)


def describe_async(server: FakeTriton, **options: Any) -> Description:
    async def ask() -> Description:
        transport = AsyncGrpcTransport(server.address)
        try:
            return await transport.describe("echo", **options)
        finally:
            await transport.close()

    return asyncio.run(ask())


BOTH = pytest.mark.parametrize("ask", [describe, describe_async], ids=["sync", "asyncio"])


def served(server: FakeTriton) -> Any:
    """The config to be changed."""
    return server.configs["echo"]


def test_a_plain_model_is_none_of_the_other_kinds(server: FakeTriton) -> None:
    told = describe(server)
    assert {told.decoupled, told.stateful, told.ensemble, told.mixes_up} == {False}
    assert (told.identity.model, told.identity.version, told.identity.digest) == ("echo", "", "")


def test_the_kinds_are_read_from_the_config(server: FakeTriton) -> None:
    served(server).model_transaction_policy.decoupled = True
    assert describe(server).decoupled
    served(server).sequence_batching.max_sequence_idle_microseconds = 1
    assert describe(server).stateful
    served(server).ensemble_scheduling.step.add(model_name="a")
    told = describe(server)
    assert (told.ensemble, told.stateful) == (True, False)


@BOTH
def test_the_version_that_answers_is_asked_for_where_the_config_does_not_say(
    server: FakeTriton, ask: Describe
) -> None:
    server.versions = ["9", "10", "2"]
    assert ask(server).identity.version == ""
    assert ask(server, identify=True).identity.version == "10"
    assert ask(server, version="1", identify=True).identity.version == "1"
    served(server).version_policy.specific.versions.extend([3, 12])
    assert ask(server, identify=True).identity.version == "12"
    assert ask(server).identity.version == "12"


@BOTH
def test_the_digest_is_that_of_the_version(server: FakeTriton, ask: Describe) -> None:
    served(server).parameters["mmctl.digest"].string_value = "1:ab12 2:cd34"
    assert ask(server, identify=True).identity.digest == "ab12"
    server.versions = ["1", "2"]
    assert ask(server, identify=True).identity.digest == "cd34"
    server.versions = ["3"]
    assert ask(server, identify=True).identity.digest == ""


@pytest.mark.parametrize(
    ("text", "digests"),
    [
        ("1:ab12 20:cd", {1: "ab12", 20: "cd"}),
        ("", {}),
        ("ab12", {}),
        ("x:ab 1: 2:c", {2: "c"}),
    ],
)
def test_digests(text: str, digests: dict[int, str]) -> None:
    assert digests_of(text) == digests


def test_the_platform_has_the_precision(server: FakeTriton) -> None:
    served(server).backend = "onnxruntime"
    plain = describe(server).identity.platform
    entry = served(server).optimization.execution_accelerators.gpu_execution_accelerator.add()
    entry.name, entry.parameters["precision_mode"] = "tensorrt", "FP16"
    assert plain == "onnxruntime"
    assert describe(server).identity.platform != plain


def cached(name: str, dims: list[int], digest: str = "1:ab", outputs: int = 1) -> Any:
    message = config(name, {"x": ("TYPE_FP32", dims)})
    for number in range(1, outputs):
        message.output.add(name=f"y{number}", data_type=11, dims=[1])
    message.response_cache.enable = True
    message.version_policy.specific.versions.append(1)
    message.parameters["mmctl.digest"].string_value = digest
    return message


@pytest.mark.parametrize(
    ("message", "mixes_up"),
    [
        pytest.param(cached("echo", [4]), False, id="as mmctl allows it"),
        pytest.param(cached("echo", [4], digest=""), True, id="nobody says what it is made from"),
        pytest.param(cached("echo", [-1]), True, id="a free axis"),
        pytest.param(cached("echo", [4], outputs=2), True, id="several outputs"),
    ],
)
def test_tritons_own_cache_is_told_where_it_may_mix_requests_up(
    server: FakeTriton, message: Any, *, mixes_up: bool
) -> None:
    server.configs["echo"] = message
    assert describe(server).mixes_up is mixes_up
    message.response_cache.enable = False
    assert not describe(server).mixes_up


def candidacy(server: FakeTriton) -> Candidacy:
    with GrpcTransport(server.address) as transport:
        return transport.candidate("echo")


def test_a_candidate_answers_or_gets_copies(server: FakeTriton) -> None:
    assert candidacy(server) == Candidacy()
    server.configs["echo__next"] = config("echo__next")
    server.configs["echo__next"].parameters["mmctl.shadow"].string_value = "5"
    assert candidacy(server) == Candidacy(share=0, shadow=5)
    server.configs["echo__next"].parameters["mmctl.canary"].string_value = "2.5"
    assert candidacy(server) == Candidacy(share=2.5, shadow=5)
