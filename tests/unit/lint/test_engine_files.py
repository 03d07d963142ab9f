"""T001 to T003: engines in a model repository, whose GPU nobody has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_files import V10, V11, plan_bytes
from lint_repositories import found, model
from onnx_samples import identity, onnx_model

from mmctl.lint.engine_files import ENGINE_CHECKS
from mmctl.lint.repository import Target
from mmctl.triton.releases import parse_release

CONFIG = model("x:FP32[4]", "y:FP32[4]", batch=16, backend="tensorrt")
NOBODY_SAID = Target()
OLD = Target(release=parse_release("24.10"))
SAME = Target(release=parse_release("25.10"))
GUESSED = Target(release=parse_release("25.08"), name="guessed")
BEFORE_10 = Target(release=parse_release("24.03"))


def stamp(
    batches: tuple[int, int] | None = (1, 16), capability: str = "9.0", schema: int = 1
) -> str:
    return json.dumps(
        {
            "schema": schema,
            "tensorrt": "10.13.3.9",
            "batches": batches,
            "compute_capability": capability,
            "onnx_sha256": "",
        }
    )


def judged(
    folder: Path,
    config: str = CONFIG,
    target: Target = NOBODY_SAID,
    **files: str | bytes,
) -> list[str]:
    """`severity path:line CODE message`; files of version 1 have `_` for the dot."""
    inside = {f"m/1/{name.replace('_', '.')}": content for name, content in files.items()}
    files_here = {"m/config.pbtxt": config, **inside}
    findings = found(folder, files_here, ENGINE_CHECKS, target=target)
    return [f"{f.severity} {f.path}:{f.line} {f.code} {f.message}" for f in findings]


# ---------------------------------------------------------------- T001


@pytest.mark.parametrize(
    ("content", "target", "said"),
    [
        pytest.param(plan_bytes(V10), NOBODY_SAID, None, id="nobody said for what"),
        pytest.param(plan_bytes(V10), SAME, None, id="fits"),
        pytest.param(
            plan_bytes(V10),
            OLD,
            "error m/1/model.plan:1 T001 the engine was made by TensorRT 10.13.3.9, and "
            "Triton 24.10 has TensorRT 10.5",
            id="another release",
        ),
        pytest.param(plan_bytes(V11), GUESSED, "warning m/1/model.plan:1 T001", id="a guess"),
        pytest.param(
            plan_bytes(V10), Target(tensorrt=(10, 13, 3)), None, id="the owner says the same"
        ),
        pytest.param(
            plan_bytes(V10),
            Target(tensorrt=(10, 9), name="prod"),
            "error m/1/model.plan:1 T001 the engine was made by TensorRT 10.13.3.9, and prod has "
            "TensorRT 10.9",
            id="the owner says another",
        ),
        pytest.param(
            b"\x08\x08:", NOBODY_SAID, "T001 not a TensorRT engine: it does not", id="no engine"
        ),
        pytest.param(plan_bytes(size=80)[:60], OLD, "T001 has 60 bytes and its", id="cut off"),
        pytest.param(plan_bytes(tag=b"vtrt"), OLD, "TensorRT for RTX", id="for RTX"),
    ],
)
def test_an_engine_is_for_one_tensorrt(
    tmp_path: Path, content: bytes, target: Target, said: str | None
) -> None:
    findings = judged(tmp_path, target=target, model_plan=content)
    assert len(findings) == (said is not None), findings
    assert said is None or said in findings[0]


def test_engines_for_several_gpus_are_all_looked_at(tmp_path: Path) -> None:
    more = 'cc_model_filenames [ { key: "9.0" value: "hopper.plan" } ]'
    files: dict[str, str | bytes] = {"model_plan": plan_bytes(V10), "hopper_plan": plan_bytes(V11)}
    findings = judged(tmp_path, CONFIG + more, OLD, **files)
    assert [finding.split()[1] for finding in findings] == ["m/1/hopper.plan:1", "m/1/model.plan:1"]


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_other_backends_have_no_engines(tmp_path: Path, backend: str) -> None:
    config = model("x:STRING[4]", "y:FP32[4]", batch=16, backend=backend)
    assert judged(tmp_path, config, OLD, model_plan=b"no engine") == []


def test_an_engine_that_is_not_there_is_another_matter(tmp_path: Path) -> None:
    assert judged(tmp_path, target=OLD) == []


# ---------------------------------------------------------------- T002


@pytest.mark.parametrize(
    ("side", "max_batch", "said"),
    [
        pytest.param(stamp(), 16, None, id="covers them"),
        pytest.param(stamp(), 8, None, id="and more"),
        pytest.param(
            stamp((1, 1)),
            16,
            "error m/config.pbtxt:2 T002 the engine takes batches of 1 to 1, and max_batch_size is "
            "16",
            id="one row",
        ),
        pytest.param(
            stamp((64, 256)),
            256,
            "warning m/config.pbtxt:2 T002 the engine takes batches of 64 to 256: smaller ones "
            "fail",
            id="many rows",
        ),
        pytest.param(stamp(None), 16, None, id="nobody said"),
        pytest.param(stamp((1, 1), schema=2), 16, None, id="of a later mmctl"),
        pytest.param("[]", 16, None, id="somebody else's file"),
        pytest.param("{", 16, None, id="no JSON"),
    ],
)
def test_a_profile_covers_every_batch(
    tmp_path: Path, side: str, max_batch: int, said: str | None
) -> None:
    config = model("x:FP32[4]", "y:FP32[4]", batch=max_batch, backend="tensorrt")
    findings = judged(tmp_path, config, model_plan=plan_bytes(), engine_json=side)
    assert findings == [said] if said else not findings


@pytest.mark.parametrize(
    ("capability", "count"), [("9.0", 0), ("8.9", 1), ("", 0)], ids=["same", "another", "unknown"]
)
def test_an_engine_is_for_one_kind_of_gpu(tmp_path: Path, capability: str, count: int) -> None:
    target = Target(name="prod", capability=capability)
    findings = judged(tmp_path, CONFIG, target, model_plan=plan_bytes(), engine_json=stamp())
    assert len(findings) == count
    text = "T002 the engine was built on a GPU of compute capability 9.0, and prod has 8.9"
    assert all(text in finding for finding in findings)


# ---------------------------------------------------------------- T003


@pytest.mark.parametrize(
    ("kind", "target", "said"),
    [
        ("FP32", NOBODY_SAID, None),
        ("FP16", NOBODY_SAID, None),
        ("INT64", NOBODY_SAID, None),
        ("INT64", OLD, None),
        ("INT64", BEFORE_10, "is TYPE_INT64, which the TensorRT of Triton 24.03 lacks"),
        ("STRING", NOBODY_SAID, "is TYPE_STRING, which no TensorRT engine takes or gives"),
        ("FP64", NOBODY_SAID, "is TYPE_FP64, which no TensorRT engine takes or gives"),
    ],
)
def test_types_that_no_engine_has(
    tmp_path: Path, kind: str, target: Target, said: str | None
) -> None:
    config = model(f"x:{kind}[4]", "y:FP32[4]", batch=16, backend="tensorrt")
    findings = judged(tmp_path, config, target)
    assert len(findings) == (said is not None)
    assert said is None or findings[0] == f"error m/config.pbtxt:3 T003 input `x` {said}"


def ids() -> bytes:
    """ids[N,4] INT64 -> y[N,4] FP32."""
    return onnx_model(
        {"ids": ("INT64", ["N", 4])},
        {"y": ("FLOAT", ["N", 4])},
        [("Cast", ["ids"], ["y"], {"to": 1})],
    )


@pytest.mark.parametrize(
    ("config", "target", "said"),
    [
        pytest.param(("ids:INT64[4]", "y:FP32[4]"), OLD, [], id="as in the file"),
        pytest.param(
            ("ids:INT32[4]", "y:FP32[4]"),
            OLD,
            ["3 T003 input `ids` is TYPE_INT32 in the config, and TYPE_INT64 in the engine"],
            id="INT64 since TensorRT 10",
        ),
        pytest.param(("ids:INT32[4]", "y:FP32[4]"), BEFORE_10, [], id="INT32 before"),
        pytest.param(("ids:INT32[4]", "y:FP32[4]"), NOBODY_SAID, [], id="either"),
        pytest.param(
            ("ids:INT64[4]", "y:FP16[4]"),
            OLD,
            ["4 T003 output `y` is TYPE_FP16 in the config, and TYPE_FP32 in the engine"],
            id="half precision is inside",
        ),
    ],
)
def test_types_are_those_of_the_file_that_it_was_built_from(
    tmp_path: Path, config: tuple[str, str], target: Target, said: list[str]
) -> None:
    pytest.importorskip("onnx")
    text = model(*config, batch=16, backend="tensorrt")
    side: dict[str, str | bytes] = {"engine_json": stamp(), "model_onnx": ids()}
    findings = judged(tmp_path, text, target, model_plan=plan_bytes(V10), **side)
    found_here = [finding for finding in findings if "T003" in finding]
    assert found_here == [f"error m/config.pbtxt:{text}" for text in said]


def test_without_a_stamp_the_file_beside_it_proves_nothing(tmp_path: Path) -> None:
    config = model("x:FP16[4]", "y:FP32[4]", batch=16, backend="tensorrt")
    assert judged(tmp_path, config, model_plan=plan_bytes(), model_onnx=identity()) == []
