"""The client and `mmctl infer` against a real Triton."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from echo_models import NUMERIC, write_echo
from servers import Serve

from mmctl import AsyncClient, Client, EmbeddedTriton, InferenceError
from mmctl.cli.app import main
from mmctl.errors import InputError, WorldError
from mmctl.tensors import Array, DType

pytestmark = [pytest.mark.live, pytest.mark.alone]

PHOTO = bytes(range(256)) * 3


@pytest.fixture(scope="module")
def triton(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    repository = tmp_path_factory.mktemp("repository")
    write_echo(repository, "types", 4, **{dtype.value: (dtype, 2) for dtype in NUMERIC})
    text, numbers = (DType.STRING, 1), (DType.FP32, 2)
    write_echo(repository, "tag", 4, text=text, x=numbers)
    write_echo(repository, "half", 4, text=text, h=(DType.FP16, 2))
    write_echo(repository, "plain", 0, text=text, x=numbers)
    return serve(repository)


@pytest.fixture
def client(triton: EmbeddedTriton) -> Iterator[Client]:
    with Client(triton.grpc) as client:
        yield client


def extremes(dtype: DType) -> list[object]:
    if dtype is DType.BOOL:
        return [True, False]
    kind = dtype.numpy
    limits = np.finfo(kind.name) if kind.kind == "f" else np.iinfo(kind.name)
    return [limits.min.item() if kind.kind == "f" else limits.min, limits.max]


def test_every_type_comes_back_as_it_went(client: Client) -> None:
    sent = {dtype.value: [extremes(dtype)] for dtype in NUMERIC}
    answer = client.infer("types", sent)
    for dtype in NUMERIC:
        came = answer.outputs[f"{dtype}_out"]
        assert came.dtype == dtype.numpy
        assert came.tolist() == np.array(sent[dtype.value], dtype.numpy).tolist()
    assert (answer.model, answer.version) == ("types", "1")


@pytest.mark.parametrize(
    "text",
    [
        "你好, café",
        "你好, café".encode(),
        np.array("你好, café"),
        np.array(["你好, café"], dtype=object),
        np.array([["你好, café".encode()]]),
    ],
    ids=["str", "bytes", "numpy str", "objects", "numpy bytes"],
)
def test_every_form_of_a_text_is_the_same_text(client: Client, text: object) -> None:
    answer = client.infer("tag", {"text": text, "x": [1, 2]})
    assert answer.outputs["text_out"].tolist() == [["你好, café"]]


def test_a_list_of_texts_is_as_many_rows_and_bytes_stay_bytes(client: Client) -> None:
    answer = client.infer("tag", {"text": ["a", PHOTO], "x": np.ones((2, 2))})
    assert answer.outputs["text_out"].tolist() == [[b"a"], [PHOTO]]


def test_a_model_without_batches_gets_no_batch_axis(client: Client) -> None:
    answer = client.infer("plain", {"text": "a", "x": [1, 2]})
    assert answer.outputs["text_out"].tolist() == ["a"]
    assert answer.outputs["x_out"].tolist() == [1.0, 2.0]


def test_only_the_outputs_asked_for_come(client: Client) -> None:
    answer = client.infer("tag", {"text": "a", "x": [1, 2]}, outputs=["x_out"], version="1")
    assert list(answer.outputs) == ["x_out"]


def test_tritons_error_is_told_whole(client: Client) -> None:
    with pytest.raises(InferenceError, match='model `tag`: the text\nsaid "boom"'):
        client.infer("tag", {"text": "boom", "x": [1, 2]})


@pytest.mark.parametrize(
    ("model", "version", "message"),
    [("tga", "", "no model `tga`"), ("tag", "7", "model `tag` has no version `7`")],
)
def test_what_is_not_served_is_told(client: Client, model: str, version: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        client.infer(model, {}, version=version)


def test_what_triton_would_take_by_mistake_is_refused(client: Client) -> None:
    with pytest.raises(InputError, match="no value for `x`"):
        client.infer("tag", {"text": "a"})


def test_a_deadline_ends_the_wait_and_the_model_goes_on(client: Client) -> None:
    start = time.monotonic()
    with pytest.raises(WorldError, match=r"no answer within 0\.2 s"):
        client.infer("tag", {"text": "sleep", "x": [1, 2]}, timeout_s=0.2)
    assert time.monotonic() - start < 0.7
    assert client.infer("tag", {"text": "a", "x": [1, 2]}).outputs


def test_messages_far_above_4_mb_travel_both_ways(client: Client) -> None:
    photo = PHOTO * 20_000
    answer = client.infer("tag", {"text": photo, "x": [1, 2]})
    assert answer.outputs["text_out"].item() == photo


def test_threads_share_one_client(client: Client) -> None:
    def ask(number: int) -> str:
        answer = client.infer("tag", {"text": str(number), "x": [number, 0]})
        return str(answer.outputs["text_out"].item())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(240))) == [str(number) for number in range(240)]


def test_asyncio_has_many_requests_on_the_way(triton: EmbeddedTriton) -> None:
    async def ask_all() -> list[Array]:
        async with AsyncClient(f"grpc://{triton.grpc}") as client:
            asked = [client.infer("tag", {"text": str(n), "x": [n, 0]}) for n in range(50)]
            return [answer.outputs["x_out"] for answer in await asyncio.gather(*asked)]

    assert [array[0, 0] for array in asyncio.run(ask_all())] == list(range(50))


@pytest.fixture
def request_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A request with all kinds of values, and the folder its files are in."""
    monkeypatch.chdir(tmp_path)
    Path("my photo.jpg").write_bytes(PHOTO)
    np.save("x.npy", np.array([[1, 2], [0.1, -4]]))
    return ["-i", 'text=it\'s "你好" \\n $HOME', "-i", "text=@my photo.jpg", "-i", "x=@x.npy"]


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_the_printed_program_gives_the_same_answer(
    triton: EmbeddedTriton, request_words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["infer", "tag", *request_words, "--target", triton.grpc]
    program = asked([*words, "--show", "python"], capsys)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    texts = ['it\'s "你好" \\n $HOME'.encode(), PHOTO]
    assert done.stdout == (
        f"text_out {[[text] for text in texts]}\n"
        f"x_out {np.array([[1, 2], [0.1, -4]], np.float32).tolist()}\n"
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("model", "words"),
    [
        pytest.param("tag", ["-i", 'text=it\'s "你好" \\n %s', "-i", "x=[1, 0.1]"], id="JSON"),
        pytest.param("tag", ["-i", "text=@note.txt", "-i", "x=[1, 0.1]"], id="a file"),
        pytest.param("tag", ["-i", "text=a", "-i", "text=@note.txt", "-i", "x=@x.npy"], id="rows"),
        pytest.param("plain", ["-i", "text=a", "-i", "x=[NaN, 0.1]"], id="no JSON number"),
    ],
)
@pytest.mark.usefixtures("request_words")
def test_the_printed_curl_command_gives_the_same_answer(
    triton: EmbeddedTriton, capsys: pytest.CaptureFixture[str], model: str, words: list[str]
) -> None:
    Path("note.txt").write_text("a file's\ntext\n")
    command = ["infer", model, *words, "--target", triton.grpc]
    shown = asked([*command, "--show", "curl"], capsys)
    shown = shown.replace(f"http://{guessed_http(triton)}/", f"http://{triton.http}/")
    done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    came = {output["name"]: output["data"] for output in json.loads(done.stdout)["outputs"]}
    wanted = json.loads(asked([*command, "--json"], capsys))["outputs"]
    assert came["text_out"] == np.ravel(wanted["text_out"]).tolist()
    sent = [float(number) for number in np.ravel(wanted["x_out"])]
    np.testing.assert_array_equal(np.array(came["x_out"], np.float32), np.array(sent, np.float32))


def guessed_http(triton: EmbeddedTriton) -> str:
    host, port = triton.grpc.split(":")
    return f"{host}:{int(port) - 1}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_fp16_travels_through_the_printed_curl_command(
    triton: EmbeddedTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["infer", "half", "-i", "text=a", "-i", "h=[0.1, 65504]", "--target", triton.grpc]
    shown = asked([*words, "--show", "curl"], capsys)
    shown = shown.replace(f"http://{guessed_http(triton)}/", f"http://{triton.http}/")
    done = subprocess.run(["sh", "-c", shown], capture_output=True, check=True)
    assert done.stdout.endswith(np.array([0.1, 65504], "<f2").tobytes())
