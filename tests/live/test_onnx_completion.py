"""A real Triton completes configs with the ONNX backend as it does with the C++ one.

A choice of the 312 recorded pairs of model and config; all of them, which takes minutes, with
MMCTL_TEST_COMPLETIONS=all. Without a server all are in tests/unit.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from onnx_completion_models import MODELS, VARIANTS, Recorded, read_recorded
from onnx_samples import X, Y, identity
from servers import Serve

import mmctl.server.process
from mmctl.server.access import http_headers
from mmctl.server.process import EmbeddedTriton
from mmctl.server.wheel import wheel_launch

pytestmark = pytest.mark.live

ALL = os.environ.get("MMCTL_TEST_COMPLETIONS") == "all"
CHOSEN = {
    "absent": (
        "dyn fixed1 rank1dyn scalarout alltypes bertlike overridable noinput "
        "bf16 c64 mapout seqin zerodim"
    ),
    "backend_only": "str1",
    "mbs0_platform": "samesym",
    "mbs1_platform": "dyn fixed1",
    "mbs8_only": "dyn scalarin",
    "name_platform": "ragged",
}
PAIRS = tuple(
    (model, variant)
    for variant in VARIANTS
    for model in (MODELS if ALL else CHOSEN[variant].split())
)


@dataclass(frozen=True)
class Loaded:
    """What Triton said of a model: its config, or why it refused; and the lines in its log."""

    config: dict[str, Any] | None
    refusal: str | None
    log: tuple[tuple[str, str], ...]


class Server:
    """A Triton that completes configs, and loads what it is given one by one."""

    def __init__(self, running: EmbeddedTriton, repository: Path) -> None:
        self._running, self._repository = running, repository

    def load(self, name: str, text: str | None, file: bytes, place: str = "model.onnx") -> Loaded:
        """A model from its config.pbtxt, None for no such file, and its ONNX file at `place`."""
        folder = self._repository / name
        path = folder / "1" / place
        path.parent.mkdir(parents=True)
        path.write_bytes(file)
        if text is not None:
            (folder / "config.pbtxt").write_text(text)
        error = self._ask("POST", f"repository/models/{name}/load").get("error")
        config = None if error else self._ask("GET", f"models/{name}/config")
        self._ask("POST", f"repository/models/{name}/unload")
        return Loaded(config, error and reason(error, str(self._repository)), self._said(name))

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        headers = http_headers(self._running.control.key)
        request = Request(f"http://{self._running.http}/v2/{path}", method=method, headers=headers)
        try:
            with urlopen(request) as answer:
                return json.loads(answer.read() or "{}")
        except HTTPError as error:
            with error:
                return json.loads(error.read())

    def _said(self, name: str) -> tuple[tuple[str, str], ...]:
        line = re.compile(r"^([WI])\d.*?\] +((?:autofilled|skipping) .*)$", re.MULTILINE)
        return tuple(m for m in line.findall(self._running.log.read_text()) if f"'{name}'" in m[1])


def reason(error: str, repository: str) -> str:
    """Without what each load error has, the place in the backend's own code, and the folder.

    A check of the C++ backend says `Invalid argument: text`, one of a Python-based backend
    `Internal: Invalid argument: text`: Triton calls all that such a backend raises internal.
    """
    said = re.sub(r"(?s)\n\nAt:\n.*", "", error).removesuffix(";\n").replace(repository, "<path>")
    text = re.sub(
        r"(?s)^load failed for model '.*?': version 1 is at UNAVAILABLE state: ", "", said
    )
    statuses = "Invalid argument|Unsupported|Unavailable|Internal"
    return re.sub(rf"^Internal: (?=({statuses}): )", "", text)


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    pytest.importorskip("onnx")
    repository = tmp_path_factory.mktemp("models")
    return Server(serve(repository, complete_configs=True), repository)


# ---------------------------------------------------------------- as recorded


@pytest.fixture(scope="module")
def recorded(shared_dir: Path) -> Mapping[tuple[str, str], Recorded]:
    return read_recorded(shared_dir)


@pytest.fixture(scope="module")
def loaded(
    server: Server, recorded: Mapping[tuple[str, str], Recorded]
) -> Mapping[tuple[str, str], Loaded]:
    def load(pair: tuple[str, str]) -> Loaded:
        case = recorded[pair]
        return server.load(case.name, case.text, MODELS[pair[0]]())

    # Models that load at once may speak in one line of the log, which then belongs to nobody.
    with ThreadPoolExecutor(4 if ALL else 1) as pool:
        return dict(zip(PAIRS, pool.map(load, PAIRS), strict=True))


@pytest.mark.timeout(900 if ALL else 120)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_config_is_completed_or_refused_like_on_the_c_backend(
    recorded: Mapping[tuple[str, str], Recorded],
    loaded: Mapping[tuple[str, str], Loaded],
    pair: tuple[str, str],
) -> None:
    case, found = recorded[pair], loaded[pair]
    assert found.refusal == case.refusal
    assert case.log in (found.log, None)
    if case.config is not None:
        assert found.config is not None
        assert without_defaults(found.config) == case.config


DEFAULTS = {
    "format": "FORMAT_NONE",
    "optimization": {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": True},
        "output_pinned_memory": {"enable": True},
        "gather_kernel_buffer_threshold": 0,
        "eager_batching": False,
    },
    "runtime": "model.py",
    "version_policy": {"latest": {"num_versions": 1}},
    **{key: {} for key in ("cc_model_filenames", "metric_tags", "parameters")},
    **{key: [] for key in ("batch_input", "batch_output", "model_warmup")},
    **dict.fromkeys(("allow_ragged_batch", "is_shape_tensor", "optional"), False),
    "is_non_linear_format_io": False,
    "label_filename": "",
}
"""What Triton shows in every config, and what was left out of the recorded ones. The C++ backend
has an empty `runtime`, a Python-based one names its file.
"""


def without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config, and its inputs and outputs, without what was not recorded."""
    kept = {key: value for key, value in config.items() if value != DEFAULTS.get(key, ...)}
    tensors = {
        key: list(map(without_defaults, kept[key])) for key in ("input", "output") if key in kept
    }
    return {**kept, **tensors}


# ---------------------------------------------------------------- what else a config may leave out

INPUT = 'input { name: "x" data_type: TYPE_FP32 dims: 4 }\n'
OUTPUT = 'output { name: "y" data_type: TYPE_FP32 dims: 4 }\n'
NAMED = 'backend: "onnxruntime"\n'


def test_a_complete_config_stays_as_it_is(server: Server) -> None:
    found = server.load("whole", f"{NAMED}{INPUT}{OUTPUT}max_batch_size: 2", identity())
    assert found.config is not None
    assert found.config["max_batch_size"] == 2
    assert "dynamic_batching" not in found.config
    text = "skipping model configuration auto-complete for 'whole': "
    assert found.log == (("I", f"{text}inputs and outputs already specified"),)


def test_only_the_missing_section_is_filled(server: Server) -> None:
    found = server.load("half", f"{NAMED}{OUTPUT}max_batch_size: 3", identity())
    assert found.config is not None
    kept = without_defaults(found.config)
    assert kept["input"] == [X]
    assert kept["output"] == [Y]
    assert kept["dynamic_batching"]["preferred_batch_size"] == [3]


def test_a_scheduler_of_the_config_is_kept(server: Server) -> None:
    found = server.load("sequences", f"{NAMED}sequence_batching {{ }}", identity())
    assert found.config is not None
    assert found.config["max_batch_size"] == 4
    assert "sequence_batching" in found.config
    assert "dynamic_batching" not in found.config


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        pytest.param("other", 'default_model_filename: "net.onnx"', "net.onnx", id="another file"),
        pytest.param("deep", 'default_model_filename: "a/b.onnx"', "a/b.onnx", id="below a folder"),
        pytest.param("folder", None, "model.onnx/model.onnx", id="folder with model.onnx"),
    ],
)
def test_the_file_is_found_where_the_config_says(
    server: Server, name: str, text: str | None, place: str
) -> None:
    found = server.load(name, text and f"{NAMED}{text}", identity(), place)
    assert found.refusal is None
    assert found.config is not None
    assert without_defaults(found.config)["input"] == [X]


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        pytest.param(
            "rows",
            'input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }',
            "Invalid argument: model 'rows', tensor 'x': the model expects 2 dimensions "
            "(shape [-1,4]) but the model configuration specifies 3 dimensions (an initial batch "
            "dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
            "complete shape [-1,-1,4])",
            id="inputs with the batch axis",
        ),
        pytest.param(
            "untyped",
            'input { name: "x" }',
            "Invalid argument: model input 'x' must specify 'data_type' for untyped",
            id="an entry without a type",
        ),
        pytest.param(
            "threads",
            'parameters { key: "intra_op_thread_count" value { string_value: "abc" } }',
            "Invalid argument: failed to convert 'abc' to integral number",
            id="a parameter",
        ),
        pytest.param(
            "gone",
            'default_model_filename: "net.onnx"',
            "Internal: failed to stat file <path>/gone/1/net.onnx",
            id="no file",
        ),
    ],
)
def test_what_cannot_be_completed_is_refused_in_the_words_of_the_c_backend(
    server: Server, name: str, text: str, refusal: str
) -> None:
    assert server.load(name, f"{NAMED}{text}", identity()).refusal == refusal


# ---------------------------------------------------------------- the server's own options


@pytest.mark.parametrize(
    ("options", "found"),
    [
        pytest.param(["default-max-batch-size=16"], 16, id="for all backends"),
        pytest.param(
            ["onnxruntime,default-max-batch-size=2", "default-max-batch-size=16"],
            2,
            id="for this backend",
        ),
        pytest.param(
            ["onnxruntime,default-max-batch-size=abc"],
            "Invalid argument: failed to convert 'abc' to integral number",
            id="no number",
        ),
    ],
)
def test_the_default_batch_size_is_an_option_of_the_server(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    found: int | str,
) -> None:
    def launch(*args: Any) -> Any:
        usual = wheel_launch(*args)
        flags = tuple(f"--backend-config={option}" for option in options)
        return replace(usual, argv=(*usual.argv, *flags))

    monkeypatch.setattr(mmctl.server.process, "wheel_launch", launch)
    server = Server(serve(tmp_path, complete_configs=True), tmp_path)
    loaded = server.load("dyn", None, identity())
    assert (loaded.config["max_batch_size"] if loaded.config else loaded.refusal) == found
