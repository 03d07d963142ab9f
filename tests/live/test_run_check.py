"""What a run shows of model repositories that mmctl never wrote, and that it leaves them alone."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_samples import onnx_model
from run_repositories import ZEROS, Models, files_of, io, warm_up

from mmctl.diagnostics import Finding, Severity
from mmctl.errors import InputError
from mmctl.server.guard import processes_with
from mmctl.server.runtime import Runtime
from mmctl.trials.runcheck import run_check

pytestmark = [pytest.mark.live, pytest.mark.alone]

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
Run = Callable[..., list[Finding]]

STREAM = """\
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            for number in range(3):
                sender.send(pb.InferenceResponse([pb.Tensor("y", ANSWER)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
DECOUPLED = io(more="model_transaction_policy {decoupled: true}")
CALL = """\
answer = pb.InferenceRequest(
    model_name=NAME, requested_output_names=["y"], inputs=[pb.Tensor("x", x)]).exec()
if answer.has_error():
    raise pb.TritonModelException(answer.error().message())
return self.give(y=pb.get_output_tensor_by_name(answer, "y").as_numpy())
"""
START = "self.input(request, 'start').ravel()[0]"
SEQUENCES = io(
    more="""sequence_batching {control_input [{name: "start" control [
    {kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1]}]}]}"""
)
TWO = io("x FP32 4, z FP32 4")
OPTIONAL = io("x FP32 4, z? FP32 4")
FREE = io("x FP32 -1", "y FP32 -1")
ROWS = io("x FP32 -1 4", "y FP32 -1 4", 0)


@pytest.fixture(scope="module")
def run(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Run:
    state = tmp_path_factory.mktemp("state")

    def checked(repository: Path, **options: Any) -> list[Finding]:
        options = {"say": print, "state": state, "runtime": runtime, "deadline_s": 3, **options}
        findings = run_check(
            repository, shown=lambda path: str(path.relative_to(repository.parent)), **options
        )
        assert not processes_with(str(state)), "the server is gone"
        assert not list(state.glob("checked/*")), "the copy is gone"
        return findings

    return checked


# ---------------------------------------------------------------- many models, one server


def add_right(models: Models) -> None:
    """Nothing is wrong with any of these."""
    models.python("a_caller", CALL.replace("NAME", '"echo"'))  # the called one is later by name
    models.python("counts", "self.calls += 1\nreturn self.give(y=x * 0 + min(self.calls, 1))")
    models.python("echo")
    models.python("echo8", config=io("x FP32 8", "y FP32 8"))
    models.python("free", config=FREE)
    models.python("half", config=io("x FP16 4", "y FP16 4", more="dynamic_batching {}"))
    models.python("no_batch", config=ROWS)
    optional = "z = self.input(request, 'z')\nreturn self.give(y=x if z is None else x + z)"
    models.python("optional", optional, OPTIONAL)
    scalar = io(outputs="y FP32 1").replace("dims: [1]", "dims: [1] reshape {shape: []}")
    models.python("scalar", "return self.give(y=x.sum(axis=1))", scalar)
    total = f"self.total = x + (0 if {START} else self.total)\nreturn self.give(y=self.total)"
    models.python("sequence", total, SEQUENCES)
    models.code("stream", STREAM.replace("ANSWER", "x + number"), DECOUPLED)
    upper = "return self.give(y=np.array([[t.upper() for t in row] for row in x], object))"
    models.python("texts", upper, io("x STRING 1", "y STRING 1"))
    index = "if x.max() > 1:\n    raise IndexError('out of range')\nreturn self.give(y=x)"
    models.python("tokens", index, io("x INT64 -1", "y INT64 -1"))
    sevens = "if (x != 7).any():\n    raise ValueError('not seven')\nreturn self.give(y=x)"
    folder = models.python("warm", sevens, io(more=warm_up('input_data_file: "sevens"')))
    (folder / "warmup").mkdir()
    (folder / "warmup" / "sevens").write_bytes(struct.pack("<4f", 7, 7, 7, 7))
    models.ensemble("flow", io(), "echo: x=x -> y=t", "no_batch: x=t -> y=y")
    models.ensemble("flow_of_flow", io(), "flow: x=x -> y=y")
    models.ensemble("flow_stream", io(), "stream: x=x -> y=t", "echo: x=t -> y=y")
    models.ensemble("flow_sequence", io(), "sequence: x=x -> y=y")
    models.ensemble("two", io(outputs="p FP32 4, q FP32 4"), "echo: x=x -> y=p", "echo: x=x -> y=q")


def add_wrong_outputs(models: Models) -> None:
    models.python("out_rank", "return self.give(y=x.mean(axis=0))")
    models.python("out_type", "return self.give(y=x.astype('int64'))")
    models.python("out_dims", "return self.give(y=x[:, :3])")
    models.python("out_rows", "return self.give(y=x[:1])")
    models.python("out_left", "return self.give()")
    models.python("out_name", "return self.give(z=x)")
    models.python("out_some", "return self.give(y=x) if (x != 1).any() else self.give()")
    models.python("out_twice", "return pb.InferenceResponse([pb.Tensor('y', x)] * 2)")
    models.code("out_stream", STREAM.replace("ANSWER", "x[0]"), DECOUPLED)
    folder = models.python("out_new", config=io(more="version_policy {all {}}"))
    code = (folder / "1" / "model.py").read_text().replace("give(y=x)", "give(y=x[:, :1])")
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text(code)
    models.ensemble("flow_rank", io(), "out_rank: x=x -> y=y")
    models.ensemble("flow_left", io(), "out_left: x=x -> y=t", "echo: x=t -> y=y")


def add_wrong_batches(models: Models) -> None:
    models.python("batch_baked", "return self.give(y=x.reshape(1, 4))")
    models.python("batch_pairs", "return self.give(y=x.reshape(-1, 2, 4).reshape(x.shape))")
    models.python("batch_most", "assert len(x) < 4\nreturn self.give(y=x)")
    models.python("batch_huge", config=io("x FP32 4096", "y FP32 4096", 5000))
    models.onnx("batch_onnx", recurrent(), io(outputs="y FP32 3", max_batch=8))
    models.python("mates", "return self.give(y=x - x.mean(axis=0))")
    models.python("mates_little", "return self.give(y=x + np.float32(1e-3) * x.mean(axis=0))")
    models.python("chance", "return self.give(y=np.random.rand(*x.shape).astype('float32'))")
    models.ensemble("flow_baked", io(), "batch_baked: x=x -> y=y")
    models.ensemble("flow_mates", io(), "mates: x=x -> y=y")
    models.python("boxes", "return self.give(y=np.ones((3, 4), 'float32'))", ROWS)
    models.python("add", "return self.give(y=x + self.input(request, 'z'))", TWO)
    models.ensemble("flow_join", io(), "boxes: x=x -> y=t", "add: x=t z=x -> y=y")


def recurrent() -> bytes:
    """A model whose state was traced with one row; its axes are declared free all the same."""
    weights = {
        "w": np.ones((1, 3, 4), np.float32),
        "r": np.ones((1, 3, 3), np.float32),
        "state": np.zeros((1, 1, 3), np.float32),
        "axis": np.array([0]),
    }
    return onnx_model(
        {"x": ("FLOAT", ("N", 4))},
        {"y": ("FLOAT", ("N", 3))},
        [
            ("Unsqueeze", ["x", "axis"], ["sequence"], {}),
            ("RNN", ["sequence", "w", "r", "", "", "state"], ["", "last"], {"hidden_size": 3}),
            ("Squeeze", ["last", "axis"], ["y"], {}),
        ],
        weights,
    )


def add_wrong_others(models: Models) -> None:
    models.python("picky", "raise ValueError('not what I take')")
    models.python("picky_even", "return self.give(y=x.reshape(-1, 2).reshape(x.shape))",
                  io("x FP32 -1", "y FP32 -1", 0))  # fmt: skip
    models.python("not_optional", "return self.give(y=x + self.input(request, 'z'))", OPTIONAL)
    once = f"if not {START}:\n    raise ValueError('over')\nreturn self.give(y=x)"
    models.python("sequence_once", once, SEQUENCES)
    models.python("calls_nobody", CALL.replace("NAME", '"no" + "body"'))
    models.python("calls_stream", CALL.replace("NAME", '"stream"'))
    gpu = io(more="instance_group [{kind: KIND_GPU gpus: [3]}]")
    models.python("gpu", "return self.give(y=x[:, :3])", gpu)
    models.write("other", f'backend: "dali"\n{io()}')
    models.write("broken", f'backend: "python"\n{io()}instance_count: 2\n')
    models.code("init", "import no_such_thing")
    models.ensemble("flow_other", io(), "other: x=x -> y=y")
    models.ensemble("flow_broken", io(), "echo: x=x -> y=t", "broken: x=t -> y=y")
    models.ensemble("wild", io("x FP32 -1", "y FP32 8"), "free: x=x -> y=t", "echo8: x=t -> y=y")
    models.ensemble("never", io("x FP32 4", "y FP32 8"), "free: x=x -> y=t", "echo8: x=t -> y=y")
    models.ensemble("subset", io(outputs="p FP32 4, y FP32 4"), "echo: x=x -> y=p",
                    "echo: x=p -> y=y")  # fmt: skip
    (models.root / "no_model").mkdir()
    (models.root / "no_model" / "notes.txt").write_text("not a model")


@pytest.fixture(scope="module")
def many(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """Findings by model."""
    models = Models(tmp_path_factory.mktemp("many") / "repository")
    for add in (add_right, add_wrong_outputs, add_wrong_batches, add_wrong_others):
        add(models)
    before = files_of(models.root)
    findings = run(models.root)
    assert files_of(models.root) == before, "the user's files stay as they are"
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(Path(finding.path).parts[1], []).append(finding)
    return found


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    models = Models(tmp_path_factory.mktemp("right"))
    add_right(models)
    return [folder.name for folder in models.root.iterdir()]


def test_models_that_are_right_have_no_findings(
    many: dict[str, list[Finding]], right: list[str]
) -> None:
    assert {name: many[name] for name in right if name in many} == {}


WRONG = [
    (
        "out_rank",
        "P001",
        ERROR,
        r"output `y` has the shape \[4\], and \[1,4\] is declared for 1 row",
    ),
    ("out_type", "P001", ERROR, "output `y` is TYPE_INT64, and TYPE_FP32 is declared"),
    ("out_dims", "P001", ERROR, r"the shape \[1,3\], and \[1,4\] is declared"),
    ("out_rows", "P001", ERROR, r"the shape \[1,4\], and \[2,4\] is declared for 2 rows"),
    ("out_left", "P001", ERROR, "output `y` is declared and is not in the answer"),
    ("out_name", "P001", ERROR, "output `y` is declared and is not in the answer"),
    ("out_some", "P001", ERROR, "output `y` is declared and is not in the answer"),
    ("out_twice", "P001", ERROR, "the answer does not have the shape that it says"),
    ("out_stream", "P001", ERROR, r"output `y` has the shape \[4\], and \[-1,4\] is declared"),
    ("out_new", "P001", ERROR, r"`out_new` version 2: output `y` has the shape \[1,1\]"),
    ("flow_left", "P001", ERROR, "step `echo` gets no `x`: `out_left` does not return .* `y`"),
    (
        "batch_baked",
        "M006",
        ERROR,
        "fails with 2 rows and works with 1: ValueError: cannot reshape",
    ),
    ("batch_pairs", "M006", ERROR, "fails with 1 row and works with 2: ValueError"),
    ("batch_most", "M006", ERROR, "fails with 4 rows and works with 1: AssertionError"),
    ("batch_onnx", "M006", ERROR, r"fails with 2 rows .*Input initial_h must have shape \{1,2,3\}"),
    ("batch_huge", "P006", INFO, "asked with 1536 rows at most, and `max_batch_size` is 5000"),
    ("mates", "M009", ERROR, "change an answer: `y` is .* alone and .* beside other rows"),
    ("mates_little", "M009", WARNING, "change an answer a little: `y` is"),
    ("chance", "P007", INFO, "the same request gave different answers"),
    ("flow_join", "E015", ERROR, "step `add` gets `[xz]` with another number of rows"),
    ("picky", "P002", INFO, r"generated values are refused: ValueError: not what I take \("),
    ("picky_even", "E017", INFO, "free axes of length 1 fail, 2, 4 and 8 work: ValueError"),
    ("not_optional", "P002", WARNING, "a request without `z` fails, though optional: TypeError"),
    ("sequence_once", "P002", ERROR, "the middle request of a sequence fails: ValueError: over"),
    ("calls_nobody", "P002", ERROR, "it calls `nobody`, which is not ready"),
    ("calls_stream", "P002", ERROR, "it calls `stream`, which is decoupled"),
    ("other", "P006", INFO, "not run: its backend `dali` is not on the embedded server"),
    ("flow_other", "P006", INFO, "not run: its step `other` is not run"),
    ("broken", "P003", ERROR, 'does not load: .*no field named "instance_count"'),
    ("flow_broken", "P003", ERROR, "does not load, because its step `broken` does not"),
    ("init", "P003", ERROR, "No module named 'no_such_thing'"),
    ("wild", "E017", WARNING, r"free axes of length 1, 2 and 4 fail, 8 work: .*`x` as \[-1,8\]"),
    (
        "never",
        "E017",
        ERROR,
        r"no request works: step `echo8` takes `x` as \[-1,8\] and gets \[1,4\]",
    ),
    ("subset", "E019", WARNING, "a request for `p` alone fails, one for all outputs works"),
]


@pytest.mark.parametrize(
    ("model", "code", "severity", "message"), [pytest.param(*row, id=row[0]) for row in WRONG]
)
def test_a_wrong_model_has_one_finding(
    many: dict[str, list[Finding]], model: str, code: str, severity: Severity, message: str
) -> None:
    (finding,) = many[model]
    assert (finding.code, finding.severity) == (code, severity)
    assert f"`{model}`" in finding.message
    assert re.search(message, finding.message), finding.message
    assert finding.path == f"repository/{model}/config.pbtxt"


def test_models_for_gpus_run_on_the_cpu_and_that_is_said(many: dict[str, list[Finding]]) -> None:
    assert [(f.code, f.severity) for f in many["gpu"]] == [("P001", ERROR), ("P006", INFO)]


def test_what_a_step_does_wrong_is_told_once(many: dict[str, list[Finding]]) -> None:
    assert not {"flow_rank", "flow_baked", "flow_mates"} & set(many)


def test_a_finding_stands_at_its_place(many: dict[str, list[Finding]]) -> None:
    lines = {name: many[name][0].line for name in ("out_rank", "batch_baked", "broken", "never")}
    assert lines == {"out_rank": 4, "batch_baked": 2, "broken": 6, "never": 8}


def test_only_models_that_are_run_have_findings(
    many: dict[str, list[Finding]], right: list[str]
) -> None:
    assert set(many) == {row[0] for row in WRONG} | {"gpu"}


# ---------------------------------------------------------------- what spoils the server


def test_whatever_a_model_does_to_the_server_the_others_are_run(run: Run, tmp_path: Path) -> None:
    models = Models(tmp_path / "repository")
    models.python("a_good")
    models.python("dies", "import os\nos._exit(3)")
    models.python("hangs", "return None")
    models.python("kills", "import os, signal\nos.kill(os.getppid(), signal.SIGSEGV)")
    models.code("slow", "import time\ntime.sleep(60)")
    models.ensemble("flow_hangs", io(), "hangs: x=x -> y=y")
    models.ensemble("flow_slow", io(), "slow: x=x -> y=y")
    fatal = "import os, signal\nos.kill(os.getppid(), signal.SIGSEGV)\nreturn self.give(y=x)"
    models.python("warm_kills", fatal, io(more=ZEROS))
    models.python("warm_raises", "raise ValueError('cold')", io(more=ZEROS))
    models.python("warm_some", "assert x.any()\nreturn self.give(y=x)", io(more=ZEROS))
    models.python("z_wrong", "return self.give(y=x[:, :3])")
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in run(models.root, deadline_s=2, load_s=4):
        found.setdefault(Path(finding.path).parts[1], []).append((finding.code, finding.message))
    codes = {model: sorted({code for code, _ in pairs}) for model, pairs in found.items()}
    # With its warm-up, a model says why it fails or takes the server with it, as it happens.
    assert codes.pop("warm_raises") in (["P002", "W003"], ["W003"])
    assert codes.pop("warm_some") in (["P002", "W003"], ["W003"])
    assert codes == {
        "dies": ["P004"],
        "hangs": ["P005"],
        "kills": ["P004"],
        "slow": ["P005"],
        "flow_hangs": ["P006"],
        "flow_slow": ["P003"],
        "warm_kills": ["P004", "W003"],
        "z_wrong": ["P001"],
    }
    assert "its process died of generated values" in found["dies"][0][1]
    assert "no answer within 2 s to generated values (1 row)" in found["hangs"][0][1]
    assert "the server died of generated values (1 row): Triton died of SIGSEGV" in str(
        found["kills"]
    )
    assert "it is not loaded after 4 s" in found["slow"][0][1]
    assert any("ValueError: cold" in message for _, message in found["warm_raises"])
    assert any("AssertionError" in message for _, message in found["warm_some"])


# ---------------------------------------------------------------- what the user says


def test_values_of_the_user_are_asked_with(run: Run, tmp_path: Path) -> None:
    models = Models(tmp_path / "repository")
    sevens = "if (x != 7).any():\n    raise ValueError('not seven')\nreturn self.give(y=x)"
    for name in ("fits", "refuses", "differs"):
        models.python(name, sevens)
    models.python("not_asked", sevens)

    def sample(name: str, value: float, **more: object) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"inputs": {"x": [[value] * 4] * 2}, "batch": 2, **more}))
        return path

    inputs = {
        "fits": sample("fits", 7, expect={"y": [[7] * 4] * 2}),
        "refuses": sample("refuses", 6),
        "differs": sample("differs", 7, expect={"y": [[8] * 4] * 2}),
    }
    findings = run(models.root, models=["fits", "refuses", "differs"], inputs=inputs)
    assert [(Path(f.path).parts[1], f.code, f.severity) for f in findings] == [
        ("differs", "P002", ERROR),
        ("refuses", "P002", ERROR),
    ]
    assert "sample `differs`: `y[0,0]`: 8 expected, 7.0 came" in findings[0].message
    assert "refuses sample `refuses`: ValueError: not seven" in findings[1].message
    assert "--input not_asked=FILE.json" in str(run(models.root, models=["not_asked"])[0].hint)
    wrong = sample("wrong", 7)
    wrong.write_text('{"inputs": {"q": 1}}')
    with pytest.raises(InputError, match=r"sample `wrong`: model `fits`: no input `q`"):
        run(models.root, models=["fits"], inputs={"fits": wrong})


def test_names_that_are_not_there_are_told_before_anything_starts(run: Run, tmp_path: Path) -> None:
    models = Models(tmp_path / "repository")
    models.python("echo")
    with pytest.raises(InputError, match="no model `ecko`") as caught:
        run(models.root, models=["ecko"])
    assert caught.value.hint == "did you mean `echo`?"
    with pytest.raises(InputError, match="no model `nobody`"):
        run(models.root, inputs={"nobody": tmp_path / "x.json"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no model is in it"):
        run(tmp_path / "empty")


def test_configs_that_triton_completes_are_run_as_it_completes_them(
    run: Run, tmp_path: Path
) -> None:
    models = Models(tmp_path / "repository")
    completes = """\
import triton_python_backend_utils as pb

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def execute(self, requests):
        x = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", array[:1])]) for array in x]
"""
    models.code("short", completes, "\n")
    (finding,) = run(models.root)
    assert (finding.code, finding.path) == ("P001", "repository/short/config.pbtxt")


def test_a_repository_may_have_links_in_a_circle_and_files_that_nobody_reads(
    run: Run, tmp_path: Path
) -> None:
    models = Models(tmp_path / "repository")
    folder = models.python("echo")
    (folder / "1" / "again").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "1" / "pipe")
    (models.root / "round").symlink_to(models.root)
    assert [f.code for f in run(models.root)] == []


# ---------------------------------------------------------------- cases from the field

RUN_CODES: Sequence[str] = ("P001", "M006", "M009", "E015", "E017", "E019", "L003")


def test_cases_whose_verdict_is_a_run_time_one(
    runtime: Runtime, shared_dir: Path, tmp_path: Path
) -> None:
    """Each is found by its rule, or by the reason that Triton gives for not loading it."""
    folders = []
    for path in sorted((shared_dir / "cases").glob("*/expected.json")):
        expected = json.loads(path.read_text())
        if set(expected["rules"]) & set(RUN_CODES) and (path.parent / "model_repository").is_dir():
            folders.append((path.parent, expected))
    if not folders:
        pytest.skip("there are no such cases beside the checkout")
    options: Any = {"say": print, "state": tmp_path, "runtime": runtime, "deadline_s": 3}
    for folder, expected in folders:
        found = run_check(folder / "model_repository", **options)
        least = WARNING if expected["verdict"] == "warning" else ERROR
        known = {*expected["rules"], "P005" if "L003" in expected["rules"] else "P003"}
        grave = [f for f in found if f.severity in (least, ERROR)]
        assert {f.code for f in grave} & known, f"{folder.name}: {found}"
