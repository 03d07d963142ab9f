"""What a config.pbtxt says of the model as a whole: C005 to C009, C015, C019."""

from __future__ import annotations

from pathlib import Path

import pytest
from file_trees import Files
from lint_repositories import found, found_in, lines

from mmctl.lint.configs.model import CONFIG_CHECKS
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

AT = "error m/config.pbtxt:1"
PYTHON = 'backend: "python"\n'
NO_TELLING = "there is no model file whose name tells it in the first version"
METRICS = "model_metrics { metric_control { metric_identifier { %s } %s } }"
FAMILY = 'family: "nv_inference_first_response_histogram_ms"'
BUCKETS = "histogram_options { buckets: [ 1, 10 ] }"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            'name: "ranker"\nbackend: "python"',
            [f"{AT} C005 the config names the model `ranker`, and its folder is `m`"],
            id="another name",
        ),
        pytest.param(
            'platform: "python"', [f"{AT} C006 unknown platform `python`"], id="backend as platform"
        ),
        pytest.param(
            'platform: "onnxruntime"',
            [f"{AT} C006 unknown platform `onnxruntime`"],
            id="another backend as platform",
        ),
        pytest.param(
            'backend: "onnxruntime_onnx"',
            [f"{AT} C006 `onnxruntime_onnx` is a platform"],
            id="platform as backend",
        ),
        pytest.param('backend: "ensemble"', [f"{AT} C006 `ensemble` is a platform"], id="ensemble"),
        pytest.param('backend: "Python"', [f"{AT} C006 `Python` is no backend"], id="capitals"),
        pytest.param('backend: "onnx"', [f"{AT} C006 `onnx` is no backend"], id="a short word"),
        pytest.param(
            'platform: "tensorrt_plan"\nbackend: "onnxruntime"',
            [
                f"{AT} C006 the platform `tensorrt_plan` does not belong to the backend "
                "`onnxruntime`"
            ],
            id="a pair that is none",
        ),
        pytest.param(
            'platform: "onnxruntim"\ndefault_model_filename: "model.onnx"',
            [f"{AT} C006 the platform `onnxruntim` does not belong to the backend `onnxruntime`"],
            id="a misspelt platform beside a known file",
        ),
        pytest.param(
            'default_model_filename: "encoder.py"',
            [
                f"{AT} C007 could not determine the backend of `m`: neither `backend` nor "
                "`platform` is given, and `encoder.py` tells it as little"
            ],
            id="a file that tells no backend",
        ),
        pytest.param(
            'backend: "onnxruntme"',
            [f"{AT} C008 unknown backend `onnxruntme`"],
            id="a misspelt backend",
        ),
        pytest.param(
            'backend: "mine"',
            ["warning m/config.pbtxt:1 C008 unknown backend `mine`"],
            id="a backend that the server may have",
        ),
        pytest.param(
            'runtime: "../lib/libtriton_x.so"\nbackend: "identity"',
            [
                f"{AT} C009 the backend library `../lib/libtriton_x.so` lies outside the backend's "
                "folder"
            ],
            id="a library elsewhere",
        ),
        pytest.param(
            'runtime: "fast"\nbackend: "identity"',
            [f"{AT} C009 there is no backend library `fast` for the backend `identity`"],
            id="a word for a library",
        ),
        pytest.param(
            'runtime: "model.py"\nbackend: "python"',
            [f"{AT} C009 there is no backend library `model.py` for the backend `python`"],
            id="the Python backend has one library",
        ),
        pytest.param(
            'max_batch_size: -1\nbackend: "python"',
            [f"{AT} C015 `max_batch_size` is -1, and must not be negative"],
            id="a negative batch",
        ),
        pytest.param(
            f"model_metrics {{ metric_control {{ {BUCKETS} }} }} {PYTHON}",
            [f"{AT} C019 a metric control needs a `metric_identifier`"],
            id="no metric",
        ),
        pytest.param(
            METRICS % ("", BUCKETS) + PYTHON,
            [f"{AT} C019 a `metric_identifier` needs a `family` that is not empty"],
            id="no family",
        ),
        pytest.param(
            METRICS % (FAMILY, "") + PYTHON,
            [f"{AT} C019 a metric control needs `histogram_options`"],
            id="no histogram",
        ),
        pytest.param(
            METRICS % (FAMILY, "histogram_options { }") + PYTHON,
            [f"{AT} C019 `histogram_options` needs `buckets`"],
            id="no buckets",
        ),
        pytest.param(
            METRICS % ('family: "nv_gpu_utilization"', BUCKETS) + PYTHON,
            [
                "warning m/config.pbtxt:1 C019 `nv_gpu_utilization` is no customizable metric, so "
                "its control has no effect"
            ],
            id="a metric without buckets",
        ),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, config: str, expected: list[str]) -> None:
    assert found_in(tmp_path, config, CONFIG_CHECKS) == expected


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("", id="an empty config beside a model.py"),
        pytest.param('name: "m"\nbackend: "python"', id="its own name"),
        pytest.param('platform: "pytorch_libtorch"', id="a platform alone"),
        pytest.param('platform: "tensorrt_plan" backend: "tensorrt"', id="a pair"),
        pytest.param('platform: "anything" backend: "python"', id="Python may have any platform"),
        pytest.param(
            'platform: "python" default_model_filename: "model.py"', id="told by the file"
        ),
        pytest.param('platform: "torch_aoti"', id="a platform of a newer release"),
        pytest.param('backend: "identity" runtime: "libtriton_other.so"', id="another library"),
        pytest.param(METRICS % (FAMILY, BUCKETS) + PYTHON, id="metrics"),
    ],
)
def test_what_is_right_stays_silent(tmp_path: Path, config: str) -> None:
    assert found_in(tmp_path, config, CONFIG_CHECKS) == []


def test_a_platform_newer_than_the_target(tmp_path: Path) -> None:
    target = Target(release=parse_release("24.10"))
    found = found_in(tmp_path, 'platform: "torch_aoti"', CONFIG_CHECKS, target=target)
    assert found == [f"{AT} C006 unknown platform `torch_aoti`"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"m/config.pbtxt": "", "m/1/": ""},
            [
                f"{AT} C007 could not determine the backend of `m`: neither `backend` nor "
                f"`platform` is given, and {NO_TELLING}"
            ],
            id="nothing tells the backend",
        ),
        pytest.param(
            {"m/1/config.pbtxt": PYTHON, "m/1/weights.bin": ""},
            [
                "error m/1/config.pbtxt:1 C007 could not determine the backend of `m`: neither "
                "`backend` nor `platform` is given, as `1/config.pbtxt` is never read"
            ],
            id="the config in the version folder",
        ),
        pytest.param(
            {"m/1/config.pbtxt": PYTHON, "m/1/model.py": ""},
            ["warning m/1/config.pbtxt:1 C007 `1/config.pbtxt` is never read"],
            id="the config in the version folder of a model that loads without",
        ),
        pytest.param(
            {"m/config.pbtext": PYTHON, "m/1/weights.bin": ""},
            [
                "error m/config.pbtext:1 C007 could not determine the backend of `m`: neither "
                "`backend` nor `platform` is given, as `config.pbtext` is never read"
            ],
            id="a misspelt config",
        ),
        pytest.param(
            {"m/a/config.pbtxt": PYTHON, "m/a/1/model.py": ""},
            [
                "error m/a/config.pbtxt:1 C007 could not determine the backend of `m`: neither "
                "`backend` nor `platform` is given, as `a/config.pbtxt` is never read"
            ],
            id="a repository in the repository",
        ),
        pytest.param(
            {"docs/notes.txt": ""},
            [
                "error docs:1 C007 could not determine the backend of `docs`: there is no "
                "config.pbtxt, and no model file whose name tells it"
            ],
            id="a folder that is no model",
        ),
        pytest.param(
            {"resnet.v2/config.pbtxt": "", "resnet.v2/1/weights.bin": ""},
            [
                "error resnet.v2/config.pbtxt:1 C008 unknown backend `v2`, which the folder's name "
                "asks for: neither `backend` nor `platform` is given"
            ],
            id="a dot in the name",
        ),
        pytest.param({"m/1/model.py": ""}, [], id="no config at all"),
        pytest.param({"m.identity/1/": ""}, [], id="the backend in the name"),
        pytest.param(
            {"m/config.pbtxt": "", "m/v2/model.onnx": ""}, [], id="found in a wrong folder"
        ),
        pytest.param(
            {"m/config.pbtxt": 'backend: "mine"', "m/1/libtriton_mine.so": ""},
            [],
            id="a backend that the model brings",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/1/config.pbtxt": "", "m/1/model.py": ""},
            [],
            id="a copy of the config in the version folder",
        ),
        pytest.param(
            {
                "m/config.pbtxt": 'backend: "identity" runtime: "fast"',
                "m/1/fast": "",
            },
            [],
            id="a library that the model brings",
        ),
    ],
)
def test_files_tell_the_backend(tmp_path: Path, files: Files, expected: list[str]) -> None:
    assert lines(found(tmp_path, files, CONFIG_CHECKS)) == expected
