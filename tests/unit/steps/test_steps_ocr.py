"""Steps of ocr, ocr_line and document_qa: boxes around text, lines cut out, read and ordered."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - pictures to read

pytestmark = pytest.mark.usefixtures("siblings")

Load = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def siblings(root: Path) -> Iterator[None]:
    """Modules beside the steps of ocr are found by their bare names."""
    folder = str(root / "ensembles/ocr")
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


@pytest.fixture
def ocr(steps_of: Load) -> ModuleType:
    return steps_of("ocr")


@pytest.fixture
def ocr_line(steps_of: Load) -> ModuleType:
    return steps_of("ocr_line")


def mask_of(*rows: str) -> Any:
    return np.array([[letter == "#" for letter in row] for row in rows])


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        pytest.param(["....", "...."], [], id="nothing"),
        pytest.param(["####", "####"], [8], id="everything"),
        pytest.param(["##.#", "##.#"], [2, 4], id="two side by side"),
        pytest.param(["#..#", "#..#", "####"], [8], id="joined below"),
        pytest.param(["####", "#..#", "#..#"], [8], id="joined above"),
        pytest.param(["#.#.", ".#.#"], [4], id="corners touch"),
        pytest.param(["#...", "...#"], [1, 1], id="corners do not touch"),
        pytest.param(["...#", "#..."], [1, 1], id="the end of a row and the start of the next"),
        pytest.param(["#.#.#", "#.#.#", "#####", "..#.."], [12], id="a comb"),
        pytest.param(["#####", "#...#", "#.#.#", "#...#", "#####"], [1, 16], id="one in another"),
    ],
)
def test_parts_of_a_mask_hang_together_by_sides_and_corners(
    rows: list[str], sizes: list[int]
) -> None:
    import components

    parts = components.connected_parts(mask_of(*rows), least_side=1)
    assert sorted(int((part.last - part.first + 1).sum()) for part in parts) == sizes


def test_parts_of_any_mask_are_those_that_flooding_finds() -> None:
    import components

    random = np.random.default_rng(3)
    for density in (0.2, 0.4, 0.5, 0.7):
        mask = random.random((40, 60)) < density
        parts = {_pixels(part) for part in components.connected_parts(mask, least_side=1)}
        assert parts == set(_flooded(mask))


def _pixels(part: Any) -> frozenset[tuple[int, int]]:
    runs = zip(part.row.tolist(), part.first.tolist(), part.last.tolist(), strict=True)
    return frozenset((row, x) for row, first, last in runs for x in range(first, last + 1))


def _flooded(mask: Any) -> Iterator[frozenset[tuple[int, int]]]:
    left = set(zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True))
    while left:
        waiting, part = [left.pop()], set()
        while waiting:
            y, x = waiting.pop()
            part.add((y, x))
            around = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= around
            waiting += around
        yield frozenset(part)


def test_parts_that_are_too_thin_are_left_out() -> None:
    import components

    mask = mask_of("#########", ".........", "###......", "###......", "###......")
    parts = list(components.connected_parts(mask, least_side=3))
    assert [_pixels(part) for part in parts] == [
        frozenset((y, x) for y in (2, 3, 4) for x in (0, 1, 2))
    ]


def map_of(width: float, height: float, angle: float, size: int = 200) -> Any:
    """A map [size, size] with one text in its middle, turned clockwise by degrees."""
    y, x = np.mgrid[:size, :size] + 0.5 - size / 2
    turn = np.radians(angle)
    along = x * np.cos(turn) + y * np.sin(turn)
    down = y * np.cos(turn) - x * np.sin(turn)
    return ((np.abs(along) <= width / 2) & (np.abs(down) <= height / 2)).astype(np.float32)


@pytest.mark.parametrize("angle", [-40, -17, 0, 5, 30, 90, 75, 100])
def test_a_box_lies_around_its_text_at_any_angle(angle: float) -> None:
    import boxes

    [box] = boxes.find_boxes(map_of(120, 30, angle))
    growth = 120 * 30 * boxes.GROWTH / (2 * (120 + 30))
    assert [box.width, box.height] == pytest.approx([120 + 2 * growth, 30 + 2 * growth], abs=3)
    assert box.corners.mean(axis=0) == pytest.approx([100, 100], abs=0.4)
    assert np.degrees(np.arctan2(box.along[1], box.along[0])) == pytest.approx(angle, abs=2)
    assert [box.along @ box.down, *np.hypot(*np.stack([box.along, box.down]).T)] == pytest.approx(
        [0, 1, 1]
    )


@pytest.mark.parametrize(
    "likely",
    [
        pytest.param(np.zeros((64, 64), np.float32), id="nothing"),
        pytest.param(0.25 * map_of(60, 20, 0), id="unlikely"),
        pytest.param(0.4 * map_of(60, 20, 0), id="likely, but nowhere sure"),
        pytest.param(map_of(120, 2, 0), id="a rule"),
        pytest.param(map_of(120, 2, 30), id="a rule aslant"),
    ],
)
def test_what_is_no_text_gets_no_box(likely: Any) -> None:
    import boxes

    assert boxes.find_boxes(likely) == []


def test_a_text_at_the_edge_of_the_map_has_a_box_that_reaches_over_it() -> None:
    import boxes

    likely = np.zeros((64, 128), np.float32)
    likely[:16, :100] = 1
    [box] = boxes.find_boxes(likely)
    assert box.corners.min() < 0


def striped(angle: int = 0) -> Any:
    """A picture with one line, red at its start and blue at its end, turned clockwise."""
    picture = Image.new("RGB", (400, 300), "white")
    picture.paste((255, 0, 0), (100, 130, 200, 170))
    picture.paste((0, 0, 255), (200, 130, 300, 170))
    return np.asarray(picture.rotate(-angle, expand=True, fillcolor="white"))


@pytest.mark.parametrize("angle", [-30, 0, 12, 90])
def test_lines_are_cut_out_level_and_from_their_start_to_their_end(angle: int) -> None:
    import boxes
    import pictures

    picture = striped(angle)
    [part] = boxes.connected_parts(picture.min(axis=2) < 128, 3)
    [line] = pictures.cut_out(picture, [boxes.reading(boxes.least_box(boxes.hull_of(part)))])
    assert line.shape[0] == pictures.LINE_HEIGHT
    assert line.shape[1] == pytest.approx(48 * 200 / 40, rel=0.05)
    quarter = line.shape[1] // 4
    assert line[24, quarter].tolist() == pytest.approx([255, 0, 0], abs=3)
    assert line[24, 3 * quarter].tolist() == pytest.approx([0, 0, 255], abs=3)


def test_what_lies_beyond_the_edge_looks_like_the_edge() -> None:
    import boxes
    import pictures

    box = boxes.Box(np.array([-20.0, -10.0]), np.array([1.0, 0]), np.array([0, 1.0]), 100, 20)
    [line] = pictures.cut_out(np.full((40, 60, 3), 77, np.uint8), [box])
    assert np.unique(line).tolist() == [77]


def test_an_endless_line_is_squeezed() -> None:
    import boxes
    import pictures

    box = boxes.Box(np.array([0.0, 0.0]), np.array([1.0, 0]), np.array([0, 1.0]), 9000, 4)
    [line] = pictures.cut_out(np.zeros((4, 9000, 3), np.uint8), [box])
    assert line.shape == (48, pictures.LINE_WIDTHS[1], 3)


@pytest.mark.parametrize(
    ("width", "wanted"), [(1, 320), (320, 320), (321, 384), (384, 384), (2400, 2432)]
)
def test_lines_are_filled_up_to_few_widths(width: int, wanted: int) -> None:
    import pictures

    assert pictures.padded(np.zeros((48, width, 3), np.uint8)).shape == (48, wanted, 3)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        pytest.param((480, 640), (480, 640), id="as it is"),
        pytest.param((320, 640), (480, 960), id="small"),
        pytest.param((600, 801), (608, 800), id="rounded to 32"),
        pytest.param((3000, 4000), (1216, 1600), id="large"),
        pytest.param((1, 1), (480, 480), id="one pixel"),
        pytest.param((5, 8000), (32, 1600), id="a thread"),
    ],
)
def test_pages_are_scaled_for_the_detector(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    import pictures

    assert pictures.page_size(*size) == wanted


def file_of(picture: Any, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind, **options)
    return buffer.getvalue()


def test_a_page_is_normalised_bgr_with_its_channels_first(ocr: ModuleType) -> None:
    picture = np.full((480, 640, 3), (255, 0, 51), np.uint8)
    [[page]] = ocr.prepare(np.array([file_of(picture)], object))["page"]
    assert page.shape == (3, 480, 640)
    assert page.dtype == np.float32
    wanted = (np.array([0.2, 0, 1]) - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert page[:, 100, 100] == pytest.approx(wanted, abs=1e-6)


def test_a_photo_is_turned_as_its_camera_says() -> None:
    import pictures

    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it turned clockwise
    data = file_of(np.zeros((30, 50, 3), np.uint8), "JPEG", exif=exif)
    assert pictures.decoded(data).shape == (50, 30, 3)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"not a picture", "not an image that Pillow can read", id="text"),
        pytest.param(b"", "not an image that Pillow can read", id="nothing"),
        pytest.param(
            file_of(np.zeros((64, 64, 3), np.uint8))[:60], "not an image", id="a file cut short"
        ),
        pytest.param(
            file_of(np.zeros((8000, 8000), np.uint8)), "64 megapixels, allowed are 50", id="huge"
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_row(
    ocr: ModuleType, data: bytes, problem: str
) -> None:
    good = file_of(np.zeros((32, 32, 3), np.uint8))
    with pytest.raises(ValueError, match=problem) as error:
        ocr.prepare(np.array([good, data], object))
    assert str(error.value).endswith("(row 1 of the request)")
    assert "0x" not in str(error.value)


def test_lines_are_cut_out_of_the_picture_where_the_map_shows_them(ocr: ModuleType) -> None:
    """The map is twice as low and four times as narrow; the second row shows nothing."""
    likely = np.zeros((1, 160, 320), np.float32)
    likely[0, 40:60, 50:150] = 1
    files = np.array([file_of(np.zeros((320, 1280, 3), np.uint8))] * 2, object)
    given = ocr.cut(files, [[likely], [np.zeros_like(likely)]])
    assert [len(row) for row in given["box"]] == [1, 0]
    [box], [crop], [width] = given["box"][0], given["crop"][0], given["width"][0]
    assert box.dtype == np.int32
    assert box.mean(axis=0) == pytest.approx([4 * 100, 2 * 50], abs=1)
    right, foot = box[2] - box[0]
    assert right > 4 * 100
    assert foot > 2 * 20
    assert width == pytest.approx(48 * right / foot, rel=0.02)
    assert crop.shape == (48, 64 * np.ceil(width / 64), 3)


def line(text: str, *start: int, turned: bool = False, angle: int = 0) -> tuple[Any, ...]:
    """What the nodes give for a line of 100 x 20 that starts there."""
    turn = np.radians(angle)
    along = np.array([np.cos(turn), np.sin(turn)])
    down = np.array([-along[1], along[0]])
    corners = np.array([0 * along, 100 * along, 100 * along + 20 * down, 20 * down]) + start
    return corners.round().astype(np.int32), text, np.float32(0.9), np.array(turned)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([line("", 0, 0), line(" ", 0, 30)], "", id="no letters"),
        pytest.param([line("b", 0, 40), line("a", 0, 0)], "a\nb", id="from top to bottom"),
        pytest.param(
            [line("c", 0, 30), line("b", 120, 0), line("a", 0, 4)],
            "a\nb\nc",
            id="from left to right in a row",
        ),
        pytest.param(
            [line("b", 0, 0, turned=True), line("a", 0, 40, turned=True)],
            "a\nb",
            id="upside down",
        ),
        pytest.param(
            [line("a", 0, 0), line("b", 0, 40, turned=True), line("c", 0, 80)],
            "a\nb\nc",
            id="one line upside down",
        ),
        pytest.param(
            [line("b", 0, 0, angle=90), line("a", 40, 0, angle=90)], "a\nb", id="on its side"
        ),
        pytest.param(
            [line("b", 100, 0, angle=-30), line("a", 0, 50, angle=-30)],
            "a\nb",
            id="a row that rises",
        ),
    ],
)
def test_lines_are_told_in_the_order_of_reading(
    ocr: ModuleType, lines: list[tuple[Any, ...]], text: str
) -> None:
    rows = [[part] for part in zip(*lines, strict=True)] or [[[]]] * 4
    answer = ocr.put_together(*rows)
    assert answer["text"].tolist() == [text]
    assert "\n".join(told["text"] for told in json.loads(answer["lines"][0])) == text


def test_the_box_of_a_turned_line_starts_where_its_text_does(ocr: ModuleType) -> None:
    parts = zip(line("a", 0, 0), line("b", 0, 40, turned=True), strict=True)
    upright, turned = json.loads(ocr.put_together(*([part] for part in parts))["lines"][0])
    assert upright == {"text": "a", "score": 0.9, "box": [[0, 0], [100, 0], [100, 20], [0, 20]]}
    assert turned["box"] == [[100, 60], [0, 60], [0, 40], [100, 40]]


def crops(*widths: int, filled: int = 320) -> tuple[Any, Any]:
    """Noise of those widths, and what should be ignored at its right."""
    random = np.random.default_rng(5)
    shape = len(widths), 48, filled, 3
    return random.integers(0, 256, shape, dtype=np.uint8), np.array(widths, np.int32)


def test_what_fills_a_crop_up_is_not_looked_at(ocr_line: ModuleType) -> None:
    crop, width = crops(100, 300)
    other = crop.copy()
    other[0, :, 100:], other[1, :, 300:] = 7, 9
    probs = np.array([[1, 0], [0, 1]], np.float32)
    assert ocr_line.look(crop, width)["pixels"].shape == (2, 3, 48, 192)
    for a, b in [
        (ocr_line.look(crop, width), ocr_line.look(other, width)),
        (ocr_line.turn(crop, width, probs), ocr_line.turn(other, width, probs)),
    ]:
        assert np.array_equal(a["pixels"], b["pixels"])


def test_a_turned_line_is_what_its_upright_picture_would_be(ocr_line: ModuleType) -> None:
    crop, width = crops(100)
    upside_down = crop.copy()
    upside_down[:, :, :100] = crop[:, ::-1, 99::-1]
    upright = ocr_line.turn(crop, width, np.array([[0.05, 0.95]], np.float32))
    as_it_is = ocr_line.turn(upside_down, width, np.array([[0.2, 0.8]], np.float32))
    assert [upright["turned"].tolist(), as_it_is["turned"].tolist()] == [[True], [False]]
    assert np.array_equal(upright["pixels"], as_it_is["pixels"])
    assert upright["pixels"].shape == (1, 3, 48, 320)


def test_pixels_are_bgr_from_minus_one_to_one_and_zero_where_there_is_no_line(
    ocr_line: ModuleType,
) -> None:
    crop = np.zeros((1, 48, 320, 3), np.uint8)
    crop[..., 0] = 255
    pixels = ocr_line.turn(crop, np.array([10]), np.array([[1, 0]], np.float32))["pixels"]
    assert pixels[0, :, 5, 9].tolist() == [-1, -1, 1]
    assert pixels[0, :, 5, 10].tolist() == [0, 0, 0]


def steps_of_letters(ocr_line: ModuleType, letters: str, sure: float = 0.5) -> Any:
    """Probabilities [steps, characters]; `_` is no letter."""
    numbers = ocr_line.characters()
    probs = np.zeros((len(letters), len(numbers)), np.float32)
    for step, letter in enumerate(letters):
        probs[step, 0 if letter == "_" else numbers.index(letter)] = 0.9 if letter == "_" else sure
    return probs


@pytest.mark.parametrize(
    ("letters", "text"),
    [
        pytest.param("______", "", id="nothing"),
        pytest.param("aab_cc", "abc", id="one letter over several steps"),
        pytest.param("ab_bbb", "abb", id="a letter twice"),
        pytest.param("!_", "!", id="the first character of all"),
        pytest.param("a_ b_中", "a b中", id="spaces, other scripts"),
    ],
)
def test_letters_are_read_where_the_likeliest_one_changes(
    ocr_line: ModuleType, letters: str, text: str
) -> None:
    answer = ocr_line.read(steps_of_letters(ocr_line, letters)[None])
    assert answer["text"].tolist() == [text]
    assert answer["score"].tolist() == [0.5 if text else 0]


def test_the_characters_are_as_many_as_the_recogniser_has(ocr_line: ModuleType, root: Path) -> None:
    lock = json.loads((root / "model_repository/ocr_recognise/model.lock").read_text())
    [probs] = lock["signature"]["outputs"]
    assert probs["shape"] == [-1, len(ocr_line.characters())]
    assert len(set(ocr_line.characters())) == len(ocr_line.characters())


def test_the_answer_is_the_line_that_is_nearest_to_the_question(steps_of: Load) -> None:
    pages = [[{"text": "a", "box": [[1, 2]] * 4}, {"text": "b", "box": [[3, 4]] * 4}], []]
    document_qa = steps_of("document_qa")
    split = document_qa.split_lines(np.array([json.dumps(page) for page in pages], object))
    assert split["text"] == [["a", "b"], []]
    question = np.array([[0, 1], [1, 0]], np.float32)
    vectors = [[np.array([1, 0], np.float32), np.array([0.6, 0.8], np.float32)], []]
    answer = document_qa.find_answer(question, vectors, split["text"], split["box"])
    assert answer["answer"].tolist() == ["b", ""]
    assert answer["score"].tolist() == pytest.approx([0.8, 0])
    assert answer["box"].tolist() == [[[3, 4]] * 4, [[0, 0]] * 4]
