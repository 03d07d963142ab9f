"""Python models that call others, by their code alone."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from file_trees import Files
from lint_repositories import ensemble, found, found_in, lines, model

from mmctl.lint.code.bls import BLS_CHECKS
from mmctl.lint.code.calls import read_calls
from mmctl.lint.repository import Target
from mmctl.tensors import Signature
from mmctl.triton.repository import Lock, render_lock

HEAD = """import asyncio
import triton_python_backend_utils as pb


class TritonPythonModel:
"""
CALL = (
    'pb.InferenceRequest(model_name="work", requested_output_names=["y"], '
    'inputs=[pb.get_input_tensor_by_name(r, "x")])'
)
ONE = model("x:FP32[4]", "y:FP32[4]")
DECOUPLED = model("x:FP32[4]", "y:FP32[4]", more="model_transaction_policy { decoupled: true }")
CHECKED = "if a.has_error(): raise pb.TritonModelException(a.error().message())\n"
GET = 'pb.get_output_tensor_by_name(a, "y")'


def execute(body: str, *, more: str = "") -> str:
    """A model.py; `CALL` in the body is a call of `work`, and the body begins in line 8."""
    kind = "async def" if "await" in body else "def"
    text = (
        f"{kind} execute(self, requests):\n    out = []\n{indent(body, '    ')}\n    return out\n"
    )
    return HEAD + indent(text.replace("CALL", CALL), "    ") + indent(more, "    ")


def loop(body: str, *, more: str = "") -> str:
    """The same for each request `r`; the body begins in line 9."""
    return execute(f"for r in requests:\n{indent(body, '    ')}", more=more)


def said(
    tmp_path: Path, code: str | bytes, *, config: str = ONE, whole: bool = True, **others: str
) -> list[str]:
    """What is found in model.py of `bls`: `severity line CODE message`, warnings without theirs."""
    configs = {"work": ONE, **others, "bls": config}
    files: Files = {
        **{f"{name}/config.pbtxt": text for name, text in configs.items()},
        **{f"{name}/1/model.py": "" for name in configs},
        "bls/1/model.py": code,
    }
    findings = found(tmp_path, files, BLS_CHECKS, whole=whole)
    return [line.replace(" bls/1/model.py:", " ") for line in lines(findings) if " bls/1/" in line]


def codes(findings: list[str]) -> list[str]:
    return [line.split()[2] for line in findings]


ANSWERS = [
    pytest.param(
        loop(f"a = CALL.exec()\ny = {GET}.as_numpy()"),
        [
            "error 9 L001 the answer of `work` is used without `has_error()`: after an error the "
            "code fails with an AttributeError, and the real reason is lost"
        ],
        id="an output that is used at once",
    ),
    pytest.param(
        loop(f"a = CALL.exec()\nout.append(pb.InferenceResponse([{GET}]))"),
        [
            "warning 9 L001 the answer of `work` is used without `has_error()`: after an error an "
            "output is None, and the real reason is lost"
        ],
        id="an output that is handed on",
    ),
    pytest.param(
        loop(f"a = CALL.exec()\ny = {GET}\nz = y.as_numpy()"), ["L001"], id="an output with a name"
    ),
    pytest.param(
        loop(f"y = {GET.replace('a,', 'CALL.exec(),')}"), ["L001"], id="an answer without a name"
    ),
    pytest.param(
        loop("a = CALL.exec()\nout.append(pb.InferenceResponse(a.output_tensors()))"),
        ["L001"],
        id="all outputs",
    ),
    pytest.param(
        loop(f"for a in CALL.exec(decoupled=True):\n    y = {GET}"), ["L001"], id="each of a stream"
    ),
    pytest.param(
        execute(
            f"asked = [CALL.async_exec() for r in requests]\n"
            f"for a in await asyncio.gather(*asked):\n    y = {GET}"
        ),
        ["L001"],
        id="each of those that were gathered",
    ),
    pytest.param(
        execute(
            f"asked = []\nfor r in requests:\n    asked.append(CALL.async_exec())\n"
            f"answers = await asyncio.gather(*asked)\ny = [{GET} for a in answers]"
        ),
        ["L001"],
        id="each of a list that grew",
    ),
    pytest.param(loop(f"a = CALL.exec()\n{CHECKED}y = {GET}"), [], id="checked"),
    pytest.param(
        loop(f"a = CALL.exec()\nif not a.has_error():\n    y = {GET}"), [], id="checked for none"
    ),
    pytest.param(
        execute(
            f"answers = await asyncio.gather(*[CALL.async_exec() for r in requests])\n"
            f"if any(b.has_error() for b in answers): raise ValueError\n"
            f"y = [{GET} for a in answers]"
        ),
        [],
        id="all checked before",
    ),
    pytest.param(
        loop(f"a = CALL.exec()\nself.check(a)\ny = {GET}"), [], id="checked by another function"
    ),
    pytest.param(
        loop(f"a, b = self.ask(r), 1\ny = {GET}"), [], id="an answer that comes from elsewhere"
    ),
    pytest.param(loop("a = CALL.exec()"), [], id="an answer that nobody uses"),
    pytest.param(
        execute(
            f"results = {{}}\nfor r in requests:\n    results[r] = CALL.exec()\n"
            f"for a in results.values():\n    y = {GET}"
        ),
        [],
        id="an answer out of sight",
    ),
    pytest.param(
        execute("self.session.exec(statement)\nself.app.exec()"), [], id="what others call exec"
    ),
]


@pytest.mark.parametrize(("code", "expected"), ANSWERS)
def test_an_answer_is_looked_at_before_it_is_used(
    tmp_path: Path, code: str, expected: list[str]
) -> None:
    findings = said(tmp_path, code, config=ONE + "instance_group { count: 4 kind: KIND_CPU }")
    if expected and " " not in expected[0]:
        findings = codes(findings)
    assert [line.replace(" 10 ", " 9 ").replace(" 11 ", " 9 ") for line in findings] == expected


WAITS = [
    pytest.param(
        loop("a = CALL.async_exec()\nb = a.has_error()\nawait self.other()"),
        ["error 9 L002 the result of `async_exec` is not awaited: it is a future, no answer"],
        id="a future used as an answer",
    ),
    pytest.param(
        loop("CALL.async_exec()\nawait self.other()"),
        ["error 9 L002 the result of `async_exec` is not awaited: it is a future, no answer"],
        id="a future that nobody keeps",
    ),
    pytest.param(
        loop(f"y = {GET.replace('a,', 'CALL.async_exec(),')}\nawait self.other()"),
        ["error 9 L002 the result of `async_exec` is not awaited: it is a future, no answer"],
        id="a future read at once",
    ),
    pytest.param(
        loop("a = CALL.async_exec()"),
        [
            "error 9 L002 `async_exec` in an `execute` that is not `async`: there is no event loop "
            "for it"
        ],
        id="in an execute that is not async",
    ),
    pytest.param(loop(f"a = await CALL.async_exec()\n{CHECKED}"), [], id="awaited at once"),
    pytest.param(loop(f"p = CALL.async_exec()\na = await p\n{CHECKED}"), [], id="awaited later"),
    pytest.param(
        loop(f"a = CALL.async_exec()\na = await a\n{CHECKED}"), [], id="awaited under its own name"
    ),
    pytest.param(
        execute("asked = [CALL.async_exec() for r in requests]\nawait asyncio.gather(*asked)"),
        [],
        id="gathered",
    ),
    pytest.param(
        loop("self.asked.append(CALL.async_exec())\nawait asyncio.gather(*self.asked)"),
        [],
        id="gathered from a list of the model",
    ),
    pytest.param(
        loop("await asyncio.wait_for(CALL.async_exec(), 5)"), [], id="awaited with a limit"
    ),
    pytest.param(
        loop("task = asyncio.create_task(CALL.async_exec())\nawait task"), [], id="as a task"
    ),
    pytest.param(
        execute(
            "await asyncio.gather(*[self.ask(r) for r in requests])",
            more="def ask(self, r):\n    return CALL.async_exec()\n".replace("CALL", CALL),
        ),
        [],
        id="given back by a helper",
    ),
    pytest.param(
        execute(
            "for r in requests:\n    asyncio.run(self.ask(r))",
            more="async def ask(self, r):\n    await CALL.async_exec()\n".replace("CALL", CALL),
        ),
        [],
        id="in an async function that a plain execute runs",
    ),
]


@pytest.mark.parametrize(("code", "expected"), WAITS)
def test_what_async_exec_gives_is_awaited(tmp_path: Path, code: str, expected: list[str]) -> None:
    config = ONE + "instance_group { count: 4 kind: KIND_CPU }"
    assert said(tmp_path, code, config=config) == expected


def calls(name: str) -> str:
    return loop(f'a = pb.InferenceRequest(model_name="{name}").exec()')


@pytest.mark.parametrize(
    ("code", "others", "way"),
    [
        pytest.param(calls("bls"), {}, "`bls` -> `bls`", id="itself"),
        pytest.param(
            calls("flow"),
            {"flow": ensemble("x:FP32[4]", "y:FP32[4]", "bls x=x -> y=y")},
            "`bls` -> `flow` -> `bls`",
            id="an ensemble with it as a step",
        ),
        pytest.param(calls("work"), {}, "", id="another"),
        pytest.param(
            calls("flow"),
            {"flow": ensemble("x:FP32[4]", "y:FP32[4]", "flow x=x -> y=y")},
            "",
            id="a circle that does not lead back here",
        ),
    ],
)
def test_calls_do_not_lead_back(
    tmp_path: Path, code: str, others: dict[str, str], way: str
) -> None:
    circles = [line for line in said(tmp_path, code, **others) if "L003" in line]
    assert circles == (
        [
            f"error 9 L003 models call each other in a circle: {way}: the call waits for an "
            "instance, which waits for the call"
        ]
        if way
        else []
    )


def test_two_models_of_code_that_call_each_other_are_both_told(tmp_path: Path) -> None:
    files = {
        "p/config.pbtxt": ONE,
        "p/1/model.py": calls("q"),
        "q/config.pbtxt": ONE,
        "q/1/model.py": calls("p"),
    }
    told = [(f.path, f.message.split(": ")[1]) for f in found(tmp_path, files, BLS_CHECKS[2:3])]
    assert told == [
        ("p/1/model.py", "`p` -> `q` -> `p`"),
        ("q/1/model.py", "`q` -> `p` -> `q`"),
    ]


def request(text: str, then: str = "") -> str:
    return loop(f"a = pb.InferenceRequest({text}).exec()\n{CHECKED}{then}")


WORK = 'model_name="work"'
NAMES = [
    pytest.param(
        request('model_name="wrok"'), ["model `wrok` is not in the repository"], id="no such model"
    ),
    pytest.param(
        request(f"{WORK}, model_version=7"),
        ["version 7 of `work` is called, which has only 1"],
        id="no such version",
    ),
    pytest.param(
        request(f"{WORK}, model_version=0"),
        ["version 0 of `work` is called, which has only 1"],
        id="version 0",
    ),
    pytest.param(request(f"{WORK}, model_version=-1"), [], id="the newest version"),
    pytest.param(
        request(f'{WORK}, requested_output_names=["y", "logits"]'),
        ["model `work` has no output `logits`"],
        id="no such output",
    ),
    pytest.param(
        request(WORK, 'y = pb.get_output_tensor_by_name(a, "logits")'),
        ["model `work` has no output `logits`"],
        id="no such output in the answer",
    ),
    pytest.param(
        request(
            f'{WORK}, requested_output_names=["z"]', 'y = pb.get_output_tensor_by_name(a, "z")'
        ),
        ["model `work` has no output `z`"],
        id="one wrong name is one mistake",
    ),
    pytest.param(
        request(f'{WORK}, inputs=[pb.Tensor("X", x)]'),
        ["model `work` has no input `X`"],
        id="no such input",
    ),
    pytest.param(
        request(f'{WORK}, inputs=[pb.Tensor.from_dlpack("X", x)]'),
        ["model `work` has no input `X`"],
        id="no such input, from another library",
    ),
    pytest.param(
        request(f"{WORK}, inputs=[]"), ["input `x` of `work` is not given"], id="no inputs"
    ),
    pytest.param(
        request('"id", 0, [pb.get_input_tensor_by_name(r, "q")], ["y"], "work"'),
        ["model `work` has no input `q`"],
        id="arguments by their place",
    ),
    pytest.param(request(f"{WORK}, inputs=tensors"), [], id="inputs that are not known"),
    pytest.param(request(f"{WORK}, inputs=[self.tensor(r)]"), [], id="an input that is not known"),
    pytest.param(request("model_name=self.name"), [], id="a name that nobody gave"),
    pytest.param(request('model_name=f"{name}_v2"'), [], id="a name that is built"),
    pytest.param(request("**options"), [], id="hidden arguments"),
]


@pytest.mark.parametrize(("code", "expected"), NAMES)
def test_what_is_called_by_a_literal_name_is_there(
    tmp_path: Path, code: str, expected: list[str]
) -> None:
    findings = said(tmp_path, code)
    assert [line.split(" L004 ")[1] for line in findings] == expected
    assert all(line.startswith("error ") for line in findings)


VARIABLES = [
    pytest.param('name = "wrok"\n{}', True, id="given once"),
    pytest.param('name = "wrok"\nname = "work"\n{}', False, id="given twice"),
    pytest.param('name: str = "wrok"\n{}', True, id="with its type"),
    pytest.param('name = other = "wrok"\n{}', True, id="with another name"),
    pytest.param('name = "wrok" if self.test else "work"\n{}', False, id="by a condition"),
    pytest.param('for name in ("wrok", "work"):\n    {}', False, id="by a loop"),
    pytest.param('name = "wrok"\nname += "_2"\n{}', False, id="and changed"),
]


@pytest.mark.parametrize(("body", "is_known"), VARIABLES)
def test_a_variable_counts_as_the_one_literal_that_it_is_given(
    tmp_path: Path, body: str, is_known: bool
) -> None:
    call = "a = pb.InferenceRequest(model_name=name).exec()"
    assert codes(said(tmp_path, execute(body.format(call)))) == ["L004"] * is_known


@pytest.mark.parametrize(
    ("given", "is_known"),
    [
        pytest.param('self.name = "wrok"', True, id="once"),
        pytest.param('self.name = "wrok"\n    self.name = args["name"]', False, id="twice"),
        pytest.param('self.name = args.get("name", "wrok")', False, id="with a default"),
    ],
)
def test_an_attribute_counts_as_the_one_literal_that_it_is_given(
    tmp_path: Path, given: str, is_known: bool
) -> None:
    more = f"def initialize(self, args):\n    {given}\n"
    code = loop("a = pb.InferenceRequest(model_name=self.name).exec()", more=more)
    assert codes(said(tmp_path, code)) == ["L004"] * is_known


def test_an_output_that_was_not_asked_for_is_not_there(tmp_path: Path) -> None:
    two = model("x:FP32[4]", "y:FP32[4] z:FP32[4]")
    code = request(
        'model_name="two", requested_output_names=["y"]',
        'z = pb.get_output_tensor_by_name(a, "z")',
    )
    assert said(tmp_path, code, two=two) == [
        "error 11 L004 output `z` of `two` is read and not asked for (`y`)"
    ]


def test_in_a_part_of_a_repository_a_model_may_be_elsewhere(tmp_path: Path) -> None:
    assert said(tmp_path, calls("gone"), whole=False) == []


def test_a_model_that_only_a_server_knows_is_asked_nothing(tmp_path: Path) -> None:
    code = request('model_name="auto", inputs=[pb.Tensor("X", x)], requested_output_names=["Y"]')
    assert said(tmp_path, code, auto='backend: "python"') == []


@pytest.mark.parametrize(
    ("callee", "call", "expected"),
    [
        pytest.param(
            "stream",
            "exec()",
            ["error 9 L005 model `stream` is decoupled, and `exec` asks it for one answer"],
            id="asked for one answer",
        ),
        pytest.param(
            "flow",
            "exec(decoupled=False)",
            ["error 9 L005 model `flow` is decoupled, and `exec` asks it for one answer"],
            id="an ensemble that streams",
        ),
        pytest.param("stream", "exec(decoupled=True)", [], id="asked for a stream"),
        pytest.param("stream", "exec(decoupled=self.decoupled)", [], id="perhaps"),
        pytest.param("work", "exec(decoupled=True)", [], id="a model that gives one answer"),
    ],
)
def test_a_decoupled_model_is_asked_for_a_stream(
    tmp_path: Path, callee: str, call: str, expected: list[str]
) -> None:
    code = loop(f'a = pb.InferenceRequest(model_name="{callee}").{call}')
    flow = ensemble("x:FP32[4]", "y:FP32[4]", "stream x=x -> y=y")
    assert said(tmp_path, code, stream=DECOUPLED, flow=flow) == expected


JOINS = model("x:FP32[4]", "y:FP32[4]", batch=8, more="dynamic_batching { }\n")
ALONE = "info 9 L006 the model has one instance, which takes one request at a time, for all its"
SERIAL = "info 9 L006 the calls for the requests of one `execute` wait for each other"


@pytest.mark.parametrize(
    ("code", "config", "expected"),
    [
        pytest.param(loop("a = CALL.exec()"), JOINS, [SERIAL], id="one after the other"),
        pytest.param(
            loop("a = await CALL.async_exec()"), JOINS, [SERIAL], id="awaited one after the other"
        ),
        pytest.param(
            execute("answers = [CALL.exec() for r in requests]\n"), JOINS, [SERIAL], id="in a list"
        ),
        pytest.param(
            execute("await asyncio.gather(*[CALL.async_exec() for r in requests])"),
            JOINS,
            [],
            id="gathered",
        ),
        pytest.param(loop("a = CALL.exec()"), ONE, [], id="one request at a time"),
        pytest.param(
            loop("a = await CALL.async_exec()"), ONE, [f"{ALONE} `async`"], id="one instance"
        ),
        pytest.param(
            loop("a = await CALL.async_exec()"),
            ONE + "instance_group { count: 4 kind: KIND_CPU }",
            [],
            id="four instances",
        ),
        pytest.param(
            loop("a = await CALL.async_exec()"),
            ONE + "instance_group { gpus: [ 0, 1 ] kind: KIND_GPU }",
            [],
            id="an instance on each of two GPUs",
        ),
    ],
)
def test_calls_that_wait_for_each_other_are_a_remark(
    tmp_path: Path, code: str, config: str, expected: list[str]
) -> None:
    found_here = said(tmp_path, code, config=config)
    assert [line.replace("info 8", "info 9") for line in found_here] == expected


def test_a_target_with_gpus_gives_an_instance_on_each(tmp_path: Path) -> None:
    files = {
        "bls/config.pbtxt": ONE,
        "bls/1/model.py": loop("a = await CALL.async_exec()"),
        "work/config.pbtxt": ONE,
    }
    assert found(tmp_path, files, BLS_CHECKS, target=Target(gpus=2)) == ()


@pytest.mark.parametrize(
    ("code", "place"),
    [
        pytest.param("def execute(self, requests)\n", 1, id="a missing colon"),
        pytest.param("def f():\n  x = 1\n y = 2\n", 3, id="a wrong indent"),
        pytest.param("x = 1\ny = '", 2, id="a string without an end"),
        pytest.param(b"x = 1\0\n", 1, id="a zero byte"),
        pytest.param(b"x = '\xff'\n", 1, id="not UTF-8"),
        pytest.param(b"# coding: nothing\n", 1, id="an unknown coding"),
        pytest.param("(" * 1000, 1, id="brackets without end"),
        pytest.param("x = " + "-" * 100_000 + "1", 1, id="too deep"),
    ],
)
def test_code_that_cannot_be_parsed_is_a_warning(
    tmp_path: Path, code: str | bytes, place: int
) -> None:
    (line,) = said(tmp_path, code)
    assert line.startswith(f"warning {place} L007 the code is not Python as this version knows it")


def test_code_for_an_environment_of_its_own_may_be_of_another_python(tmp_path: Path) -> None:
    own = ONE + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "env.tar.gz" } }'
    (line,) = said(tmp_path, "def f(:\n", config=own)
    assert line.startswith("info 1 L007 ")


def test_code_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (line,) = said(tmp_path, "#" * (1024 * 1024 + 1))
    assert line == "warning 1 L007 the code cannot be read: larger than 1 MiB"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param('x = "\\d"\n', id="a string that Python warns of"),
        pytest.param("\ufeffx = 1\n".encode(), id="a byte order mark"),
        pytest.param("# coding: latin-1\nx = '\xe9'\n".encode("latin-1"), id="another coding"),
        pytest.param("", id="nothing"),
    ],
)
def test_code_that_python_takes_is_silent(tmp_path: Path, code: str | bytes) -> None:
    assert said(tmp_path, code) == []


def test_only_the_highest_served_version_of_a_python_model_is_read(tmp_path: Path) -> None:
    broken = "def f(:\n"
    files = {
        "old/config.pbtxt": ONE,
        "old/1/model.py": broken,
        "old/2/model.py": "",
        "onnx/config.pbtxt": 'platform: "onnxruntime_onnx"',
        "onnx/1/model.py": broken,
        "named/config.pbtxt": ONE + 'default_model_filename: "main.py"',
        "named/1/model.py": broken,
        "named/1/main.py": "",
    }
    assert found(tmp_path, files, BLS_CHECKS) == ()


TIMED = [
    pytest.param("x = " + "+".join(["a"] * 900) + "\n", 500, id="deep sums"),
    pytest.param("a.append(q.async_exec())\n", 20_000, id="a list that grows"),
    pytest.param(f"y = {GET}\ny.as_numpy()\n", 10_000, id="many uses of one answer"),
    pytest.param(f"a = {CALL}.exec()\nb = [a, a]\na = b\n", 5_000, id="names that go round"),
    pytest.param("a = [q.async_exec()]\nb = (a, a)\na = [*b, a]\n", 99, id="lists of lists"),
]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("body", "times"), TIMED)
def test_code_is_read_in_time_however_it_is_written(body: str, times: int) -> None:
    code = loop(f"a = {CALL}.exec()\n" + body * times)
    assert read_calls(code.encode()).broken is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("import triton_python_backend_utils as pb", id="as another name"),
        pytest.param("import triton_python_backend_utils", id="as it is"),
        pytest.param("from triton_python_backend_utils import InferenceRequest", id="the class"),
        pytest.param("from triton_python_backend_utils import InferenceRequest as I", id="renamed"),
    ],
)
def test_a_request_is_known_however_it_is_imported(line: str) -> None:
    words = line.split()
    name = words[-1] if "from" in words else f"{words[-1]}.InferenceRequest"
    (request,) = read_calls(
        f'{line}\nr = {name}(model_name="work")\n# InferenceRequest'.encode()
    ).requests
    assert request.model == "work"


def test_the_code_that_a_build_makes_later_is_not_missed(tmp_path: Path) -> None:
    tensors = Signature((), (), max_batch=0)
    lock = render_lock(Lock(2, "key", tensors, {"model.py": "0" * 64}))
    assert found_in(tmp_path, ONE, BLS_CHECKS, {"m/model.lock": lock}) == []
