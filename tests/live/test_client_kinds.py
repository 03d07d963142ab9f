"""The client and all kinds of models on a real Triton: batches, ensembles, streams, sequences,
deadlines, and many callers at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from servers import Serve

from mmctl import AsyncClient, Client, EmbeddedTriton, InferenceError
from mmctl.cache.cache import Cache
from mmctl.errors import InputError, WorldError

pytestmark = [pytest.mark.live, pytest.mark.alone]

HEAD = """
import json, time
import numpy as np
import triton_python_backend_utils as pb

def given(request, name="x"):
    return pb.get_input_tensor_by_name(request, name).as_numpy()

def answer(**outputs):
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in outputs.items()])

class TritonPythonModel:
"""
TENSORS = """
max_batch_size: {batch}
input {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }}
"""
PYTHON = 'backend: "python"\ninstance_group { kind: KIND_CPU count: 1 }'

TWICE = """
    def execute(self, requests):
        return [self.twice(given(request)) for request in requests]

    def twice(self, x):
        if (x < 0).any():
            return pb.InferenceResponse(error=pb.TritonError("a row is below 0"))
        return answer(y=2 * x)
"""
SUM = """
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [answer(y=self.added(request)) for request in requests]

    def added(self, request):
        flags, key = request.flags(), request.correlation_id()
        if flags & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0
        self.sums[key] += given(request)
        total = self.sums[key]
        if flags & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.sums[key]
        return total.astype("float32")
"""
COUNT = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(given(request).ravel()[0])):
                if request.is_cancelled():
                    break
                sender.send(answer(y=np.array([[number]], "float32")))
                time.sleep(0.01)
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PATIENT = """
    seen = 0

    def execute(self, requests):
        return [self.wait(request, float(given(request).ravel()[0])) for request in requests]

    def wait(self, request, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if request.is_cancelled():
                self.seen += 1
                return answer(y=np.zeros((1, 1), "float32"))
            time.sleep(0.01)
        return answer(y=np.full((1, 1), self.seen, "float32"))
"""
STEP = """
    step {{ model_name: "{model}" model_version: -1
      input_map {{ key: "x" value: "{takes}" }} output_map {{ key: "y" value: "{gives}" }} }}
"""
BOTH = 'platform: "ensemble"\nensemble_scheduling {{{}}}\n'.format(
    STEP.format(model="twice", takes="x", gives="y")
    + STEP.format(model="twice", takes="y", gives="z")
)


def add_model(repository: Path, name: str, code: str, config: str, batch: int = 1) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config + TENSORS.format(batch=batch))
    if code:
        (folder / "1" / "model.py").write_text(HEAD + code)


@pytest.fixture(scope="module")
def triton(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    repository = tmp_path_factory.mktemp("repository")
    queue = "dynamic_batching { max_queue_delay_microseconds: 0 }"
    add_model(repository, "twice", TWICE, f"{PYTHON}\n{queue}", batch=64)
    add_model(repository, "sum", SUM, f"{PYTHON}\nsequence_batching {{ oldest {{ }} }}", batch=4)
    add_model(
        repository, "count", COUNT, f"{PYTHON}\nmodel_transaction_policy {{ decoupled: true }}"
    )
    add_model(repository, "patient", PATIENT, PYTHON)
    more = 'output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    add_model(repository, "both", "", BOTH + more, batch=64)
    return serve(repository)


@pytest.fixture
def client(triton: EmbeddedTriton) -> Iterator[Client]:
    with Client(triton.grpc) as client:
        yield client


def column(*values: float) -> list[list[float]]:
    return [[value] for value in values]


# ---------------------------------------------------------------- batches and ensembles


@pytest.mark.parametrize("model", ["twice", "both"])
def test_more_rows_than_the_model_takes_come_back_in_order(client: Client, model: str) -> None:
    answer = client.infer(model, x=np.arange(1000))
    assert answer.outputs["y"].tolist() == column(*range(0, 2000, 2))
    assert (answer.model, answer.version) == (model, "1")


def test_a_failed_part_fails_the_call_and_its_rows_are_told(client: Client) -> None:
    rows = np.arange(200)
    rows[130] = -1
    with pytest.raises(InferenceError, match=r"rows 129 to 192 of 200: .*a row is below 0"):
        client.infer("twice", x=rows)


@pytest.mark.parametrize(("outputs", "values"), [(["y"], [2]), (["z"], [4]), (["z", "y"], [4, 2])])
def test_some_outputs_of_an_ensemble_come_at_once_and_alone(
    client: Client, outputs: list[str], values: list[int]
) -> None:
    answer = client.infer("both", x=1, outputs=outputs, timeout_s=5)
    assert {name: array.item() for name, array in answer.outputs.items()} == dict(
        zip(outputs, values, strict=True)
    )


# ---------------------------------------------------------------- streams


def test_every_answer_of_a_decoupled_model_comes(client: Client) -> None:
    answers = client.stream("count", x=5)
    assert [answer.outputs["y"].item() for answer in answers] == [0, 1, 2, 3, 4]


def test_no_answer_is_an_answer_too(client: Client) -> None:
    assert list(client.stream("count", x=0)) == []


def test_a_stream_of_a_plain_model_has_one_answer(client: Client) -> None:
    assert [answer.outputs["y"].item() for answer in client.stream("twice", x=5)] == [10]


def test_asyncio_streams(triton: EmbeddedTriton) -> None:
    async def counted() -> list[float]:
        async with AsyncClient(triton.grpc) as client:
            return [answer.outputs["y"].item() async for answer in client.stream("count", x=5)]

    assert asyncio.run(counted()) == [0, 1, 2, 3, 4]


def test_leaving_a_stream_early_cancels_the_rest(client: Client) -> None:
    for answer in client.stream("count", x=10_000):
        if answer.outputs["y"].item() == 3:
            break
    start = time.monotonic()
    assert len(list(client.stream("count", x=2, timeout_s=10))) == 2
    assert time.monotonic() - start < 5


def test_a_decoupled_model_is_no_matter_for_infer(client: Client) -> None:
    with pytest.raises(InputError, match="any number of answers") as caught:
        client.infer("count", x=1)
    assert "client.stream" in str(caught.value.hint)


# ---------------------------------------------------------------- sequences


def test_requests_of_a_sequence_share_a_state_of_their_own(client: Client) -> None:
    with client.sequence("sum") as one, client.sequence("sum") as other:
        sums = [
            (one.infer(x=value).outputs["y"].item(), other.infer(x=10 * value).outputs["y"].item())
            for value in (1, 2, 3)
        ]
    assert sums == [(1, 10), (3, 30), (6, 60)]


def test_after_its_last_request_a_sequence_begins_anew(client: Client) -> None:
    with client.sequence("sum") as sequence:
        assert sequence.infer(x=1).outputs["y"].item() == 1
        assert sequence.infer(x=1, last=True).outputs["y"].item() == 2
        assert sequence.infer(x=5).outputs["y"].item() == 5


def test_a_sequence_that_was_left_is_ended_at_the_server(client: Client) -> None:
    with client.sequence("sum", sequence_id=77) as sequence:
        sequence.infer(x=1)
    with pytest.raises(InferenceError, match="must specify the START flag"):
        client.infer("sum", x=1, parameters={"sequence_id": 77})


def test_asyncio_sequences(triton: EmbeddedTriton) -> None:
    async def sums() -> list[float]:
        async with AsyncClient(triton.grpc) as client, client.sequence("sum") as sequence:
            return [(await sequence.infer(x=2)).outputs["y"].item() for _ in range(3)]

    assert asyncio.run(sums()) == [2, 4, 6]


def test_a_request_without_a_sequence_is_refused_with_the_way(client: Client) -> None:
    with pytest.raises(InputError, match="model `sum` is stateful") as caught:
        client.infer("sum", x=1)
    assert "client.sequence" in str(caught.value.hint)


# ---------------------------------------------------------------- deadlines


def cancellations(client: Client) -> float:
    return float(client.infer("patient", x=0).outputs["y"].item())


def test_a_deadline_is_the_servers_too(client: Client) -> None:
    before, start = cancellations(client), time.monotonic()
    with pytest.raises(WorldError, match=r"no answer within 0\.3 s"):
        client.infer("patient", x=30, timeout_s=0.3)
    assert cancellations(client) == before + 1
    assert time.monotonic() - start < 5


def test_cancelling_a_task_cancels_at_the_server(triton: EmbeddedTriton, client: Client) -> None:
    async def given_up() -> None:
        async with AsyncClient(triton.grpc) as own:
            task = asyncio.create_task(own.infer("patient", x=30))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = cancellations(client)
    asyncio.run(given_up())
    assert cancellations(client) == before + 1


# ---------------------------------------------------------------- many at once

MANY = 10_000


def test_many_requests_from_threads_are_each_answered_right(client: Client) -> None:
    def ask(number: int) -> bool:
        return bool(client.infer("twice", x=number).outputs["y"].item() == 2 * number)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(MANY)))


def test_many_requests_from_tasks_are_each_answered_right(triton: EmbeddedTriton) -> None:
    numbers = iter(range(MANY))

    async def ask_on(client: AsyncClient) -> list[bool]:
        return [
            (await client.infer("twice", x=number)).outputs["y"].item() == 2 * number
            for number in numbers
        ]

    async def ask_all() -> list[list[bool]]:
        async with AsyncClient(triton.grpc) as client:
            return await asyncio.gather(*(ask_on(client) for _ in range(200)))

    told = [right for rights in asyncio.run(ask_all()) for right in rights]
    assert len(told) == MANY
    assert all(told)


# ---------------------------------------------------------------- with a cache


@pytest.fixture
def asked(triton: EmbeddedTriton) -> Iterator[Callable[..., tuple[float, str]]]:
    """Asks `twice` through a cache: the value, and where it is from."""
    with Client(triton.grpc, cache=Cache(tenant="shop")) as client:

        def ask(x: float, **options: object) -> tuple[float, str]:
            answer = client.infer("twice", {"x": x}, **options)  # type: ignore[arg-type]
            return answer.outputs["y"].ravel()[0].item(), answer.cache.level

        yield ask


def test_an_equal_request_is_answered_from_the_cache(
    asked: Callable[..., tuple[float, str]],
) -> None:
    assert [asked(3), asked(3), asked(4)] == [(6, "none"), (6, "exact"), (8, "none")]
    assert asked(3, no_store=True) == (6, "bypass")
    assert asked(3, tenant="other") == (6, "none")
