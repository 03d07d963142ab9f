"""The semantic level before a real Triton: vectors come from a model there, and what texts have
taught `mmctl cache calibrate` is what a cache of the workspace begins with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from repositories import write_python_model
from servers import Serve, executions

from mmctl import Cache, Client, EmbeddedTriton
from mmctl.cache.semantic.embedders import KNOWN_S
from mmctl.cache.semantic.levels import FOLDER
from mmctl.cache.settings import CacheSettings
from mmctl.cli.app import main
from mmctl.workspace import read_workspace

pytestmark = pytest.mark.live

TOPICS = ("parcel", "refund", "login", "address", "voucher", "invoice", "colour", "size")
PLACES = {topic: n for n, topic in enumerate(TOPICS)}

EMBED = """
import zlib
import numpy as np
import triton_python_backend_utils as pb

PLACES = {places}

class TritonPythonModel:
    \"\"\"Near to each other is what has the same topic; the rest of a text counts for little.\"\"\"

    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("embedding", self.vectors(request))])
                for request in requests]

    def vectors(self, request):
        texts = pb.get_input_tensor_by_name(request, "text").as_numpy().ravel()
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text):
        noise = np.random.default_rng(zlib.crc32(text)).normal(size={width}) * 0.04
        for word in text.decode().split():
            if word in PLACES:
                noise[(PLACES[word] + {turned}) % {width}] += 1
        return noise.astype("f4")
"""
INTENT = """
import numpy as np
import triton_python_backend_utils as pb

PLACES = {places}

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("label", self.labels(request))])
                for request in requests]

    def labels(self, request):
        texts = pb.get_input_tensor_by_name(request, "text").as_numpy().ravel()
        known = [[w for w in text.decode().split() if w in PLACES] for text in texts]
        return np.array([[words[0] if words else "none"] for words in known], object)
"""
CONFIG = """max_batch_size: 8
input {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "{output}" data_type: {kind} dims: [ {width} ] }}
instance_group {{ kind: KIND_CPU count: 1 }}
parameters {{ key: "mmctl.digest" value: {{ string_value: "1:{content}" }} }}
"""
WIDTH = 16

POLICY = {"verified": {"max_error": 0.02}}


def write_embed(repository: Path, content: str, turned: int = 0) -> None:
    """Other `turned`, other vectors for the same texts."""
    config = CONFIG.format(output="embedding", kind="TYPE_FP32", width=WIDTH, content=content)
    code = EMBED.format(places=PLACES, width=WIDTH, turned=turned)
    write_python_model(repository, "embed", config, code)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def triton(serve: Serve, repository: Path) -> EmbeddedTriton:
    write_embed(repository, "old")
    config = CONFIG.format(output="label", kind="TYPE_STRING", width=1, content="old")
    write_python_model(repository, "intent", config, INTENT.format(places=PLACES))
    return serve(repository)


def settings(policy: object) -> CacheSettings:
    semantic = {"input": "text", "output": "label", "policy": policy}
    return CacheSettings.model_validate({"models": {"intent": {"semantic": semantic}}})


def test_a_text_near_another_by_the_servers_vectors_gets_its_answer(triton: EmbeddedTriton) -> None:
    ran = executions(triton, "intent")[0]
    with (
        Cache(tenant="shop", settings=settings({"static": 0.9})) as cache,
        Client(triton.grpc, cache=cache) as client,
    ):
        answers = [
            client.infer("intent", text=[text])
            for text in ("where is my parcel", "my parcel where", "my refund", "my parcel where")
        ]
    assert [answer.cache.level for answer in answers] == ["none", "semantic", "none", "semantic"]
    labels = [answer.outputs["label"].item() for answer in answers]
    assert labels == ["parcel", "parcel", "refund", "parcel"]
    assert 0.9 <= (answers[1].cache.similarity or 0) < 1
    assert executions(triton, "intent")[0] - ran == 2


def test_vectors_of_an_embedder_that_has_changed_are_compared_with_new_ones_only(
    triton: EmbeddedTriton, repository: Path
) -> None:
    """Turned by one place, a text on parcels lies where those on refunds lay. Within a second that
    may not be known, and a text on logins comes to lie where those on addresses did: once the
    older embedder is back, that must not be found.
    """
    with (
        Cache(tenant="shop", settings=settings({"static": 0.9})) as cache,
        Client(triton.grpc, cache=cache) as client,
    ):

        def asked(text: str) -> tuple[str, str]:
            answer = client.infer("intent", text=[text])
            return answer.cache.level, answer.outputs["label"].item()

        assert asked("the refund please") == ("none", "refund")
        try:
            write_embed(repository, "newer", turned=1)
            triton.load("embed")
            asked("my login please")
            time.sleep(KNOWN_S)
            assert asked("my parcel please") == ("none", "parcel")
            assert asked("that parcel please") == ("semantic", "parcel")
        finally:
            write_embed(repository, "old")
            triton.load("embed")
        time.sleep(KNOWN_S)
        assert asked("my address please") == ("none", "address")
        assert asked("an address please") == ("semantic", "address")


def test_who_cannot_embed_asks_the_model(triton: EmbeddedTriton) -> None:
    semantic = {"input": "text", "embedder": "none_such"}
    section = {"models": {"intent": {"semantic": semantic}}}
    with (
        Cache(tenant="shop", settings=CacheSettings.model_validate(section)) as cache,
        Client(triton.grpc, cache=cache) as client,
        pytest.warns(RuntimeWarning, match="none_such"),
    ):
        answer = client.infer("intent", text=["where is my parcel"])
    assert (answer.cache.level, answer.outputs["label"].item()) == ("none", "parcel")


# ------------------------------------------------------------------------- mmctl cache calibrate

Mmctl = Callable[..., int]


@pytest.fixture
def calibrate(workspace: Path, triton: EmbeddedTriton) -> Mmctl:
    """`mmctl cache calibrate intent FILE` in a workspace that promises at most 2 % for it."""
    semantic = {"input": "text", "output": "label", "policy": POLICY}
    document = {"cache": {"models": {"intent": {"semantic": semantic}}}}
    (workspace / "mmctl.yaml").write_text(json.dumps(document))
    words = ["-C", str(workspace), "cache", "calibrate", "intent"]
    return lambda *more: main([*words, *more, "--target", triton.grpc])


def write_texts(path: Path, count: int) -> str:
    asked = product(range(count), TOPICS)
    texts = (f"question {n} on my {topic}" for n, topic in asked)
    lines = [json.dumps({"text": next(texts)}) for _ in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_cache_begins_with_what_texts_have_proved(
    calibrate: Mmctl,
    workspace: Path,
    triton: EmbeddedTriton,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert calibrate(write_texts(workspace / "texts.jsonl", 1200), "--json") == 0
    proved = json.loads(capsys.readouterr().out)
    assert proved["error_upper"] <= 0.02
    assert proved["coverage"] > 0.5
    assert Path(proved["file"]).parent == workspace / ".mmctl" / FOLDER
    asked = [f"new question {n} on my {topic}" for n in range(10) for topic in TOPICS]
    here = read_workspace(workspace)
    with (
        Cache.of_workspace(here, tenant="shop") as cache,
        Client(triton.grpc, cache=cache) as client,
    ):
        answers = [client.infer("intent", text=[text]) for text in asked]
    hits = [
        (answer, text)
        for answer, text in zip(answers, asked, strict=True)
        if answer.cache.level == "semantic"
    ]
    assert len(hits) > len(asked) / 2
    assert all(answer.outputs["label"].item() in text for answer, text in hits)


def test_texts_that_prove_nothing_leave_nothing(
    calibrate: Mmctl, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(write_texts(workspace / "texts.jsonl", 40)) == 1
    said = capsys.readouterr().err
    assert "error: 40 texts do not prove that at most 2 %" in said
    assert "hint: give more texts" in said
    assert not (workspace / ".mmctl" / FOLDER).exists()


def test_a_line_that_is_no_text_is_told_with_its_number(
    calibrate: Mmctl, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = workspace / "texts.jsonl"
    texts.write_text('{"text": "my parcel"}\n{"txt": "my refund"}\n')
    assert calibrate(str(texts)) == 2
    assert f"error: {texts}:2: this is not a text" in capsys.readouterr().err
