"""Sample files, and whether an answer is what a sample expects."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mmctl.client.samples import compare, find_sample, read_sample, read_samples
from mmctl.errors import InputError


def write(folder: Path, content: object, name: str = "a") -> Path:
    path = folder / f"{name}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_sample_reads_its_files_from_beside_itself(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    np.save(tmp_path / "x.npy", np.arange(2))
    path = write(
        tmp_path,
        {
            "inputs": {"text": "hi", "image": {"file": "a.jpg"}, "x": {"npy": "x.npy"}},
            "expect": {"label": "block", "score": {"near": 0.93, "abs": 0.02}},
        },
    )
    sample = read_sample(path)
    assert (sample.name, sample.batch) == ("a", 1)
    assert sample.inputs["text"] == "hi"
    assert sample.inputs["image"] == b"\xff\xd8"
    np.testing.assert_array_equal(sample.inputs["x"], [0, 1])
    assert sample.expect == {"label": "block", "score": {"near": 0.93, "abs": 0.02}}
    assert sample.shown == {"text": "hi", "image": "a.jpg", "x": "x.npy"}


def test_a_sample_of_several_rows_lists_them(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    path = write(tmp_path, {"inputs": {"image": [{"file": "a.jpg"}, "b"]}, "batch": 2})
    assert read_sample(path).inputs == {"image": [b"1", "b"]}


def test_samples_come_by_name_and_a_missing_folder_has_none(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path, {"inputs": {}}, name)
    (tmp_path / "photo.jpg").touch()
    assert [sample.name for sample in read_samples(tmp_path)] == ["a", "b"]
    assert read_samples(tmp_path / "none") == []


def test_a_sample_is_found_by_its_name_only(tmp_path: Path) -> None:
    write(tmp_path, {"inputs": {}}, "spam")
    assert find_sample(tmp_path, "spam").name == "spam"
    with pytest.raises(InputError, match="no sample `spma`") as caught:
        find_sample(tmp_path, "spma")
    assert caught.value.hint == "did you mean `spam`?"
    with pytest.raises(InputError, match=r"no sample `\.\./secret`"):
        find_sample(tmp_path, "../secret")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param('{"inputs": {},}', "a.json:1:15: not JSON", id="not JSON"),
        pytest.param("[" * 100_000, "a.json: not JSON", id="deeper than anything"),
        pytest.param([], "a.json: not a sample", id="a list"),
        pytest.param({"input": {}}, "unknown key `input`", id="unknown key"),
        pytest.param({"inputs": []}, "`inputs` is not a mapping", id="inputs"),
        pytest.param({"inputs": {}, "batch": 0}, "`batch` is the number of rows", id="no rows"),
        pytest.param({"inputs": {}, "batch": True}, "`batch` is the number", id="a boolean"),
        pytest.param({"inputs": {"x": {"fil": "a"}}}, "`x`: not a value", id="a wrong file"),
        pytest.param({"inputs": {"x": {"file": "none"}}}, "no such file", id="a missing file"),
        pytest.param(
            {"inputs": {"x": ["a"]}, "batch": 2}, "`x` has 1 rows, and `batch` is 2", id="rows"
        ),
        pytest.param(
            {"inputs": {}, "expect": {"y": {"near": 1}}}, "`y`: not an expectation", id="no abs"
        ),
        pytest.param(
            {"inputs": {}, "expect": {"y": {"near": 1, "abs": "a"}}},
            "`y`: not an expectation",
            id="a tolerance that is text",
        ),
    ],
)
def test_a_wrong_sample_is_told(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(InputError, match=r"a\.json") as caught:
        read_sample(write(tmp_path, content))
    assert message in str(caught.value)


ANSWER = {
    "label": np.array([["block"]], dtype=object),
    "score": np.array([[0.93]], dtype=np.float32),
    "probs": np.array([[0.25, 0.75]], dtype=np.float32),
    "hits": np.array([[3]], dtype=np.int32),
    "odd": np.array([[math.nan]]),
    "yes": np.array([[True]]),
    "pair": np.array([["a"], ["b"]], dtype=object),
}


@pytest.mark.parametrize(
    "expect",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"label": "block"}, id="a text"),
        pytest.param({"label": [["block"]]}, id="the same with its axes"),
        pytest.param({"score": 0.93}, id="fp32 next to the number in the file"),
        pytest.param({"score": {"near": 0.92, "abs": 0.02}}, id="within the tolerance"),
        pytest.param({"probs": [0.25, 0.75]}, id="a list"),
        pytest.param({"probs": {"near": [0.2, 0.8], "abs": 0.06}}, id="a list, each within"),
        pytest.param({"hits": 3}, id="a whole number"),
        pytest.param({"hits": {"near": 4, "abs": 1}}, id="a whole number within"),
        pytest.param({"odd": math.nan}, id="NaN is NaN"),
        pytest.param({"yes": True}, id="a boolean"),
        pytest.param({"pair": ["a", "b"]}, id="rows"),
    ],
)
def test_an_answer_that_is_as_expected_has_no_differences(expect: dict[str, object]) -> None:
    assert compare(ANSWER, expect) == []


@pytest.mark.parametrize(
    ("expect", "difference"),
    [
        pytest.param({"label": "allow"}, "`label`: `allow` expected, `block` came", id="a text"),
        pytest.param({"score": 0.92}, "`score`: 0.92 expected, 0.93 came", id="a number"),
        pytest.param(
            {"score": {"near": 0.9, "abs": 0.02}}, "`score`: 0.9 within 0.02 expected", id="near"
        ),
        pytest.param({"probs": [0.25, 0.5]}, "`probs[1]`: 0.5 expected, 0.75 came", id="a place"),
        pytest.param({"probs": [1]}, "`probs`: shape [] expected, [2] came", id="a shape"),
        pytest.param({"hits": 3.4}, "`hits`: 3.4 expected, 3 came", id="no rounding"),
        pytest.param({"hits": "3"}, "`hits`: `3` expected, 3 came", id="text is no number"),
        pytest.param({"labl": "block"}, "`labl`: not among the outputs", id="a name"),
        pytest.param({"score": math.nan}, "`score`: nan expected", id="NaN"),
        pytest.param({"score": None}, "`score`: None expected", id="nothing"),
    ],
)
def test_a_difference_is_one_sentence(expect: dict[str, object], difference: str) -> None:
    (told,) = compare(ANSWER, expect)
    assert told.startswith(difference)


def test_all_differences_are_told() -> None:
    assert len(compare(ANSWER, {"label": "allow", "hits": 4, "yes": True})) == 2
