"""Mistakes that people really made with clients: the client does what was meant, or says what is
wrong before anything is sent. The models are those of the cases.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from servers import Serve

from mmctl import Client, EmbeddedTriton, InferenceError
from mmctl.client.transport import GrpcTransport
from mmctl.errors import InputError, WorldError

pytestmark = [pytest.mark.live, pytest.mark.alone]

MODELS = {
    "098_float64_for_fp32": "m",
    "101_unicode_strings": "tag",
    "106_grpc_4mb_limit": "big",
    "109_grpc_timeout_and_cancellation": "slow",
    "112_integer_wraps_in_python_model": "u8",
    "113_sequence_without_id": "acc",
}
"""Cases 100 and 103 have the model of 101; 104, 107 and 110 that of 098."""

HELLO = "你好, café"


@pytest.fixture(scope="module")
def triton(
    serve: Serve, shared_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> EmbeddedTriton:
    repository = tmp_path_factory.mktemp("repository")
    for case, model in MODELS.items():
        folder = shared_dir / "cases" / case / "model_repository" / model
        shutil.copytree(folder, repository / model)
    return serve(repository)


@pytest.fixture
def client(triton: EmbeddedTriton) -> Iterator[Client]:
    with Client(triton.grpc) as client:
        yield client


def test_098_numpys_float64_goes_into_fp32(client: Client) -> None:
    answer = client.infer("m", feat=np.array([0.1, 2, 3, 4]))
    assert answer.outputs["score"].tolist() == [np.array([0.1, 2, 3, 4], np.float32).tolist()]


def test_100_a_list_of_texts_is_as_many_rows(client: Client) -> None:
    answer = client.infer("tag", text=["a", "b"])
    assert answer.outputs["tag"].tolist() == [["a"], ["b"]]


@pytest.mark.parametrize(
    "text",
    [
        HELLO,
        [HELLO],
        HELLO.encode(),
        np.array([HELLO]),
        np.array([HELLO], object),
        np.array([HELLO.encode()]),
    ],
    ids=["str", "list", "bytes", "numpy str", "objects", "numpy bytes"],
)
def test_101_and_103_every_form_of_a_text_is_that_text(client: Client, text: object) -> None:
    assert client.infer("tag", text=text).outputs["tag"].tolist() == [[HELLO]]


@pytest.mark.parametrize(
    ("feat", "message"),
    [
        ([[1], [2], [3], [4]], r"shape \[4,1\] given, \[rows,4\] expected"),
        ([1, 2, 3], r"shape \[3\] given"),
        (["1", "2", "3", "4"], "is text"),
    ],
    ids=["nested otherwise", "too few", "texts"],
)
def test_104_nesting_counts(client: Client, feat: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        client.infer("m", feat=feat)


def test_106_answers_above_4_mb_come(client: Client) -> None:
    assert client.infer("big", n=5_000_000).outputs["y"].shape == (5_000_000,)


def test_107_what_grpc_cannot_send_is_refused_at_once(triton: EmbeddedTriton) -> None:
    from mmctl.inference import InferRequest

    zeros = np.broadcast_to(np.float32(0), (135_000_000, 4))
    with (
        GrpcTransport(triton.grpc) as transport,
        pytest.raises(InputError, match=r"has 2\.16 GB, and one gRPC message may have 2\.15 GB"),
    ):
        transport.infer(InferRequest("m", {"feat": zeros}))


def test_109_a_deadline_ends_each_wait_and_code_that_runs_goes_on(client: Client) -> None:
    def ask(_: int) -> str:
        with pytest.raises(WorldError) as caught:
            client.infer("slow", x=np.ones(4), timeout_s=0.4)
        return str(caught.value)

    start = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        told = set(pool.map(ask, range(3)))
    assert told == {"model `slow`: no answer within 0.4 s"}
    assert time.monotonic() - start < 1.4


def test_110_threads_share_one_client(client: Client) -> None:
    def ask(number: int) -> bool:
        answer = client.infer("m", feat=np.full(4, number))
        return answer.outputs["score"].tolist() == [[number] * 4]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(240)))


def test_112_a_number_that_would_wrap_is_refused(client: Client) -> None:
    with pytest.raises(InputError, match=r"does not fit int32"):
        client.infer("u8", x=[300_000_000_000, 7])


def test_113_a_stateful_model_asks_for_a_sequence(client: Client) -> None:
    with pytest.raises(InputError, match="model `acc` is stateful"):
        client.infer("acc", x=1)
    with client.sequence("acc") as sequence:
        assert [sequence.infer(x=value).outputs["y"].item() for value in (1, 2)] == [1, 2]
    with pytest.raises(InferenceError, match="START flag"):
        client.infer("acc", x=1, parameters={"sequence_id": 7})
