"""What Triton's log says of models that did not load."""

from __future__ import annotations

import pytest

from mmctl.server.control import ModelState
from mmctl.server.log import Loading, find_failures, find_loading, find_reason, last_words

TIME = "1130 22:22:28.728923 10754"
PROTOBUF = (
    "[libprotobuf ERROR /build/text_format.cc:337] "
    "Error parsing text-format inference.ModelConfig: "
)


def error(text: str, place: str = "model_repository_manager.cc:1460") -> str:
    return f'E{TIME} {place}] "{text}"\n'


def info(text: str) -> str:
    return f'I{TIME} model_lifecycle.cc:472] "{text}"\n'


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        pytest.param(
            PROTOBUF
            + '4:43: Unknown enumeration value of "TYPE_FLOAT32" for field "data_type".\n'
            + error(
                "Poll failed for model directory 'm': failed to read text proto from "
                "/tree/m/config.pbtxt"
            ),
            '/tree/m/config.pbtxt:4:43: Unknown enumeration value of "TYPE_FLOAT32" for field '
            '"data_type".',
            id="a config that is no config, at its line",
        ),
        pytest.param(
            error("Poll failed for model directory 'm': unexpected directory name m for model x"),
            "unexpected directory name m for model x",
            id="a config that breaks a static rule",
        ),
        pytest.param(
            error("failed to load model 'm': at least one version must be available"),
            "at least one version must be available",
            id="no version",
        ),
        pytest.param(
            error(
                "failed to load 'm' version 1: Internal: RuntimeError: no weights\\n\\nAt:\\n"
                "  /tree/m/1/model.py(3): initialize\\n  /other.py(9): call\\n"
            ),
            "RuntimeError: no weights (/tree/m/1/model.py, line 3, in initialize)",
            id="Python that raises, at its innermost place",
        ),
        pytest.param(
            error("Invalid argument: ensemble m contains models that are not available: other"),
            "ensemble m contains models that are not available: other",
            id="an ensemble, named in the middle of the message",
        ),
        pytest.param(
            error("failed to load model 'm': old") + error("failed to load model 'm': new"),
            "new",
            id="the last reason of several",
        ),
        pytest.param(
            error("failed to load model 'm2': not this one") + error("m_2 and x.m are others"),
            None,
            id="other models with similar names",
        ),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_reason_of_a_model(log: str, reason: str | None) -> None:
    assert find_reason("m", log) == reason


def test_protobuf_speaks_of_the_config_that_is_named_next() -> None:
    poll = "Poll failed for model directory '{0}': failed to read text proto from /tree/{0}"
    log = (
        f"{PROTOBUF}1:2: first\n{PROTOBUF}3:4: second\n"
        + error(poll.format("a"))
        + f"{PROTOBUF}5:6: third\n"
        + error(poll.format("b"))
    )
    assert find_reason("a", log) == "/tree/a:1:2: first; 3:4: second"
    assert find_reason("b", log) == "/tree/b:5:6: third"


@pytest.mark.parametrize(
    ("index", "failing"),
    [
        pytest.param([ModelState("m", "1", "READY")], {}, id="ready"),
        pytest.param(
            [ModelState("m", "1", "UNAVAILABLE", "unloaded")], {}, id="unloaded on purpose"
        ),
        pytest.param(
            [ModelState("m", "1", "READY"), ModelState("m", "2", "UNAVAILABLE", "Internal: bad")],
            {"m": "bad"},
            id="a new version that failed beside an old one that serves",
        ),
        pytest.param([ModelState("m")], {"m": "said"}, id="never loaded"),
        pytest.param([], {"m": "said"}, id="not even in the index"),
    ],
)
def test_failures_are_read_off_the_index_and_explained_by_the_log(
    index: list[ModelState], failing: dict[str, str]
) -> None:
    assert find_failures(["m"], index, error("failed to load model 'm': said")) == failing


def test_a_failure_that_nobody_explains_says_so() -> None:
    assert find_failures(["m"], [], "") == {"m": "Triton does not say why: see its log"}


def test_loading_tells_what_is_loaded_and_what_was_under_way() -> None:
    log = (
        info("loading: good:1")
        + info("loading: slow:1")
        + info("loading: bad:2")
        + info("successfully loaded 'good'")
        + error("failed to load 'bad' version 2: Internal: x")
        + info("failed to load 'bad'")
    )
    assert find_loading(log) == Loading(ready=("good",), unfinished=("slow",))


def test_last_words_are_errors_before_anything_else() -> None:
    log = info("fine") + error("CudaDriverHelper has not been initialized.") + error("the end")
    assert last_words(log) == ("the end",)
    assert last_words(info("fine") + "cannot start /bin/x: not found\n") == (
        "cannot start /bin/x: not found",
    )
