"""Ensembles: their own wiring, the models that they call, and what a request will show."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from file_trees import Files
from lint_repositories import ensemble, found, lines, model, repository

from mmctl.lint.ensembles.graph import wiring_of
from mmctl.lint.ensembles.requests import REQUEST_CHECKS
from mmctl.lint.ensembles.steps import STEP_CHECKS
from mmctl.lint.ensembles.tensors import TENSOR_CHECKS
from mmctl.lint.ensembles.wiring import ENSEMBLE_CHECKS

CHECKS = (*ENSEMBLE_CHECKS, *STEP_CHECKS, *TENSOR_CHECKS, *REQUEST_CHECKS)

X, Y = "x:FP32[4]", "y:FP32[4]"
XN, YN = "x:FP32[-1,4]", "y:FP32[-1,4]"

PLAIN = {
    "a": model("x:FP32[4]", "h:FP32[4]"),
    "b": model("h:FP32[4]", "y:FP32[4]"),
    "two": model("p:FP32[4] q:FP32[4]", "y:FP32[4]"),
    "both": model("x:FP32[4]", "h:FP32[4] k:FP32[4]"),
    "stream": model("x:FP32[4]", "h:FP32[4]", more="model_transaction_policy { decoupled: true }"),
    "a4": model("x:FP32[4]", "h:FP32[4]", batch=4),
    "b4": model("h:FP32[4]", "y:FP32[4]", batch=4),
    "two4": model("p:FP32[4] q:FP32[4]", "y:FP32[4]", batch=4),
}


def files(flow: str, **others: str) -> Files:
    configs = {**PLAIN, **others, "flow": flow}
    named = {f"{name}/config.pbtxt": text for name, text in configs.items()}
    return named | {f"{name.replace('__', '.')}/1/": "" for name in configs}


def said(tmp_path: Path, flow: str, **others: str) -> list[str]:
    """What is found in `flow`: `severity:line CODE message`."""
    findings = found(tmp_path, files(flow, **others), CHECKS)
    return [
        line.replace("error flow/config.pbtxt:", "").replace(" flow/config.pbtxt:", " ")
        for line in lines(findings)
        if "flow/config.pbtxt" in line
    ]


LINEAR = ensemble(X, Y, "a x=x -> h=t", "b h=t -> y=y")


def test_an_ensemble_that_fits_is_silent(tmp_path: Path) -> None:
    assert said(tmp_path, LINEAR) == []


OWN_MISTAKES = [
    pytest.param(
        ensemble(f"{X} mask:FP32[4]", Y, "a x=x -> h=y"),
        ["4 E001 input `mask` of the ensemble is read by no step"],
        id="an input that no step reads",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=t", "b h=other -> y=y"),
        [
            "5 E002 tensor `t` is written by step 0 (`a`) and never read",
            "6 E002 tensor `other` is read by step 1 (`b`) and written by none",
        ],
        id="a tensor that nobody writes, and one that nobody reads",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=embeding", "b h=embedding -> y=y"),
        ["6 E002 tensor `embedding` is read by step 1 (`b`) and written by none"],
        id="one misspelt name is one mistake",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=t_1", "b h=t_2 -> y=y"),
        [
            "5 E002 tensor `t_1` is written by step 0 (`a`) and never read",
            "6 E002 tensor `t_2` is read by step 1 (`b`) and written by none",
        ],
        id="another number is another name",
    ),
    pytest.param(
        ensemble(X, f"{Y} score:FP32[4]", "a x=x -> h=y"),
        ["5 E002 output `score` of the ensemble is written by no step"],
        id="an output that no step writes",
    ),
    pytest.param(
        ensemble(X, "", "a x=x -> h=y"),
        ["4 E002 tensor `y` is written by step 0 (`a`) and never read"],
        id="an ensemble without outputs",
    ),
    pytest.param(
        ensemble("", Y, "a x=x -> h=y"),
        ["4 E002 tensor `x` is read by step 0 (`a`) and written by none"],
        id="an ensemble without inputs",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", "a x=x -> h=y"),
        ["6 E009 tensor `y` is written by step 0 (`a`) and by step 1 (`a`)"],
        id="two steps that write a tensor",
    ),
    pytest.param(
        ensemble(X, Y, "both x=x -> h=y k=y"),
        ["5 E009 tensor `y` is written twice by step 0 (`both`)"],
        id="a step that writes a tensor twice",
    ),
    pytest.param(
        ensemble(f"{X} t:FP32[4]", Y, "a x=x -> h=t", "b h=t -> y=y"),
        [
            "6 E009 tensor `t` is an input of the ensemble and written by step 0 (`a`): each "
            "request gets two answers, which is an error"
        ],
        id="a step that writes an input",
    ),
    pytest.param(
        ensemble(X, Y, "two p=x q=u -> y=t", "b h=t -> y=u", "b h=u -> y=y"),
        ["5 E010 step 0 (`two`) waits for itself: `two` -> `b` -> `two`"],
        id="steps in a circle, and one after it",
    ),
    pytest.param(
        ensemble(X, Y, "two p=x q=y -> y=y"),
        ["5 E010 step 0 (`two`) waits for itself"],
        id="a step that waits for itself",
    ),
    pytest.param(
        ensemble(X, Y, "two p=x q=u -> y=t", "two p=t q=lost -> y=u", "b h=u -> y=y"),
        [
            "5 E010 step 0 (`two`) waits for itself: `two` -> `two` -> `two`",
            "6 E002 tensor `lost` is read by step 1 (`two`) and written by none",
        ],
        id="a circle that also misses a tensor",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", more="instance_group { count: 2 }\n"),
        ["5 E012 an ensemble takes no `instance_group`"],
        id="instances",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", more="optimization { }\n"),
        ["5 E012 an ensemble takes no `optimization`"],
        id="an empty optimization",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", more='model_warmup { name: "w" batch_size: 1 }\n'),
        ["5 E012 an ensemble takes no `model_warmup`"],
        id="a warm-up",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", more='backend: "python"\n'),
        ["5 E012 an ensemble has no backend, and `python` is set"],
        id="a backend",
    ),
    pytest.param(
        LINEAR.replace('platform: "ensemble"', 'backend: "ensemble"'),
        ["1 E012 an ensemble has no backend, and `ensemble` is set"],
        id="the platform written as backend",
    ),
    pytest.param(
        LINEAR.replace('platform: "ensemble"', ""),
        ["5 E012 `ensemble_scheduling` needs the platform `ensemble`, and `platform` is missing"],
        id="no platform",
    ),
    pytest.param(
        LINEAR.replace('platform: "ensemble"', 'platform: "onnxruntime_onnx"'),
        [
            "1 E012 `ensemble_scheduling` needs the platform `ensemble`, and `platform` is "
            "`onnxruntime_onnx`"
        ],
        id="another platform",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=y", more='default_model_filename: "model.py"\n'),
        ["5 E012 an ensemble has no model file, and `model.py` is set"],
        id="a model file that makes Triton add a backend",
    ),
    pytest.param(
        'platform: "ensemble"',
        ["1 E018 the ensemble has no step"],
        id="no ensemble_scheduling",
    ),
    pytest.param(
        ensemble(X, Y), ["5 E018 the ensemble has no step"], id="no step, and no noise about it"
    ),
    pytest.param(
        ensemble(X, f"{Y} z:FP32[4]", "a x=x -> h=y", "@-1 x=x -> h=z"),
        ["7 E018 step 1 has no `model_name`"],
        id="a step without a model",
    ),
    pytest.param(
        ensemble("", Y, "later -> y=y"),
        ["4 E018 step 0 (`later`) has no `input_map`"],
        id="a step without inputs",
    ),
    pytest.param(
        ensemble(X, "", "a x=x ->"),
        ["4 E018 step 0 (`a`) has no `output_map`"],
        id="a step without outputs",
    ),
]


@pytest.mark.parametrize(("flow", "expected"), OWN_MISTAKES)
def test_what_is_wrong_with_the_wiring_alone(
    tmp_path: Path, flow: str, expected: list[str]
) -> None:
    later = 'backend: "python"'
    assert said(tmp_path, flow, later=later) == expected


@pytest.mark.parametrize(
    "flow",
    [
        pytest.param(ensemble(X, Y, "two p=x q=x -> y=y"), id="a tensor read twice by a step"),
        pytest.param(
            ensemble(X, f"{Y} z:FP32[4]", "a x=x -> h=t", "b h=t -> y=y", "b h=t -> y=z"),
            id="a tensor read by two steps",
        ),
        pytest.param(
            ensemble(X, Y, "both x=x -> h=y"), id="an output of a model that nobody needs"
        ),
        pytest.param(ensemble(X, Y, "b h=t -> y=y", "a x=x -> h=t"), id="steps in another order"),
        pytest.param(ensemble(X, Y, "a x=x -> h=", "b h= -> y=y"), id="a tensor without a name"),
        pytest.param(
            ensemble(X, Y, "a x=x -> h=y", more='default_model_filename: "flow.txt"\n'),
            id="a file name that means no backend",
        ),
    ],
)
def test_what_triton_takes_is_silent(tmp_path: Path, flow: str) -> None:
    assert said(tmp_path, flow) == []


STEP_MISTAKES = [
    pytest.param(
        ensemble(X, Y, "two p=x -> y=y"),
        {},
        ["5 E004 step 0 (`two`) does not map input `q` of `two`"],
        id="an input that is not mapped",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=t", "b H=t -> y=y"),
        {},
        ["6 E005 step 1 (`b`): `b` has no input `H`"],
        id="a misspelt key is not an unmapped input too",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x other=x -> h=y"),
        {},
        ["5 E005 step 0 (`a`): `a` has no input `other`"],
        id="a key too many",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> hh=y"),
        {},
        ["5 E005 step 0 (`a`): `a` has no output `hh`"],
        id="an output that the model has not",
    ),
    pytest.param(
        ensemble(X, Y, "half x=x -> h=y"),
        {"half": 'backend: "python"\n' + model("x:FP32[4] q:FP32[4]", "").split("\n", 1)[1]},
        ["5 E004 step 0 (`half`) does not map input `q` of `half`"],
        id="the side that is known is checked alone",
    ),
    pytest.param(
        ensemble(X, Y, "half x=x -> h=t", "b h=t -> y=y"),
        {"half": model("x:FP16[4]", "h:FP32[4]")},
        [
            "5 E006 tensor `x` is TYPE_FP32 as the ensemble's input and TYPE_FP16 as `x` of step 0 "
            "(`half`)"
        ],
        id="another type than the ensemble's input",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=t", "int h=t -> y=y"),
        {"int": model("h:INT64[4]", "y:FP32[4]")},
        [
            "6 E006 tensor `t` is TYPE_FP32 as `h` of step 0 (`a`) and TYPE_INT64 as `h` of step 1 "
            "(`int`)"
        ],
        id="another type between two steps",
    ),
    pytest.param(
        ensemble(X, "y:INT8[4]", "a x=x -> h=y"),
        {},
        [
            "4 E006 tensor `y` is TYPE_FP32 as `h` of step 0 (`a`) and TYPE_INT8 as the ensemble's "
            "output"
        ],
        id="another type than the ensemble's output",
    ),
    pytest.param(
        ensemble(X, Y, "a x=x -> h=t", "five h=t -> y=y"),
        {"five": model("h:FP32[1,4]", "y:FP32[4]")},
        ["6 E007 tensor `t` is [4] as `h` of step 0 (`a`) and [1,4] as `h` of step 1 (`five`)"],
        id="another shape between two steps",
    ),
    pytest.param(
        ensemble(X, Y, "a4 x=x -> h=t", "five h=t -> y=y", batch=4),
        {"five": model("h:FP32[3,4,5]", "y:FP32[-1,4]")},
        [
            "6 E007 tensor `t` is [batch,4] as `h` of step 0 (`a4`) and [3,4,5] as `h` of step 1 "
            "(`five`)"
        ],
        id="the batch is told where one end has it",
    ),
    pytest.param(
        ensemble(X, "y:FP32[5] z:FP32[4]", "five h=t -> y=y", "b h=t -> y=z", "w x=x -> h=t"),
        {"five": model("h:FP32[5]", "y:FP32[5]"), "w": model("x:FP32[4]", "h:FP32[-1]")},
        ["7 E007 tensor `t` is [5] as `h` of step 0 (`five`) and [4] as `h` of step 1 (`b`)"],
        id="two readers that Triton meets before an open writer",
    ),
    pytest.param(
        ensemble("x:FP32[2,2]=[4]", Y, "a x=x -> h=y"),
        {"m": model("x:FP32[2,2]=[4]", "y:FP32[4]")},
        [],
        id="a reshape of the ensemble counts",
    ),
    pytest.param(
        ensemble("x:FP32[4]", "y:FP32[2,2]", "m x=x -> y=y"),
        {"m": model("x:FP32[2,2]=[4]", "y:FP32[2,2]")},
        ["5 E007 tensor `x` is [4] as the ensemble's input and [2,2] as `x` of step 0 (`m`)"],
        id="a reshape of a step does not",
    ),
    pytest.param(
        ensemble(X, Y, "a4 x=x -> h=t", "b4 h=t -> y=y", batch=8),
        {},
        [
            "2 E008 `max_batch_size` is 8, and step 0 (`a4`) takes at most 4",
            "2 E008 `max_batch_size` is 8, and step 1 (`b4`) takes at most 4",
        ],
        id="a batch that steps do not take",
    ),
    pytest.param(
        ensemble(X, Y, "stream x=x -> h=t", "two p=t q=x -> y=y"),
        {},
        [
            "6 E011 step 1 (`two`) joins `t` (the stream of step 0 (`stream`)) with `x` (one "
            "answer a "
            "request)"
        ],
        id="a stream joined with the request",
    ),
    pytest.param(
        ensemble(X, "y:FP32[4] z:FP32[4]", "stream x=x -> h=y", "stream x=x -> h=z"),
        {},
        [
            "5 E011 the ensemble's outputs join `y` (the stream of step 0 (`stream`)) with `z` "
            "(the "
            "stream of step 1 (`stream`))"
        ],
        id="outputs of two streams",
    ),
    pytest.param(
        ensemble(X, Y, "inner x=x -> y=t", "two p=t q=x -> y=y"),
        {"inner": ensemble(X, Y, "stream x=x -> h=y")},
        [
            "6 E011 step 1 (`two`) joins `t` (the stream of step 0 (`inner`)) with `x` (one "
            "answer a "
            "request)"
        ],
        id="an ensemble streams when a step of it does",
    ),
    pytest.param(
        ensemble(X, Y, "stream x=x -> h=t", "b h=t -> y=u", "two p=u q=t -> y=y"),
        {},
        [],
        id="what comes from one stream may be joined",
    ),
    pytest.param(
        ensemble("x:FP32[4]?", Y, "a x=x -> h=y"),
        {},
        [
            "5 E013 input `x` of the ensemble is optional, and step 0 (`a`) needs it as `x`: a "
            "request "
            "without it fails"
        ],
        id="an optional input that a step needs",
    ),
    pytest.param(
        ensemble("x:FP32[4] q:FP32[4]?", Y, "open x=x q=q -> y=y"),
        {"open": model("x:FP32[4] q:FP32[4]?", "y:FP32[4]")},
        [],
        id="an optional input for an optional one",
    ),
    pytest.param(
        ensemble(X, Y, "open x=x -> y=y"),
        {"open": model("x:FP32[4] q:FP32[4]?", "y:FP32[4]")},
        [],
        id="an optional input left out",
    ),
    pytest.param(
        ensemble(X, Y, "a@ x=x -> h=y"),
        {},
        ["5 E014 step 0 (`a`) has no `model_version`, which means 0, and no version is 0"],
        id="no version",
    ),
    pytest.param(
        ensemble(X, Y, "a@7 x=x -> h=y"),
        {},
        ["5 E014 step 0 (`a`) wants version 7, and `a` has only 1"],
        id="a version that is not there",
    ),
    pytest.param(
        ensemble(X, Y, "a@-2 x=x -> h=y"),
        {},
        ["5 E014 step 0 (`a`) wants version -2, and `a` has only 1"],
        id="a version below -1",
    ),
    pytest.param(
        ensemble(X, Y, "gone x=x -> h=y"),
        {},
        ["5 E016 step 0: model `gone` is not in the repository"],
        id="a model that is not there",
    ),
    pytest.param(
        ensemble(X, Y, "flow x=x -> y=y"),
        {},
        ["5 E020 ensembles call each other in a circle: `flow` -> `flow`"],
        id="an ensemble that calls itself",
    ),
    pytest.param(
        ensemble(X, Y, "other x=x -> y=y"),
        {"other": ensemble(X, Y, "flow x=x -> y=y")},
        ["5 E020 ensembles call each other in a circle: `flow` -> `other` -> `flow`"],
        id="two ensembles that call each other",
    ),
    pytest.param(
        ensemble(X, Y, "other x=x -> y=y"),
        {"other": ensemble(X, Y, "other x=x -> y=y")},
        [],
        id="an ensemble before a circle is not in it",
    ),
    pytest.param(
        ensemble(X, Y, "broken z=x -> z=y"),
        {"broken": "max_batch_size:"},
        [],
        id="a model that cannot be read is asked nothing",
    ),
    pytest.param(
        ensemble(X, Y, "empty z=x -> z=y", batch=8),
        {"empty": 'backend: "python"'},
        [],
        id="what only a server can tell is not asked",
    ),
]


@pytest.mark.parametrize(("flow", "others", "expected"), STEP_MISTAKES)
def test_what_is_wrong_with_the_models_that_are_called(
    tmp_path: Path, flow: str, others: dict[str, str], expected: list[str]
) -> None:
    assert said(tmp_path, flow, **others) == expected


@pytest.mark.parametrize(
    ("policy", "version", "expected"),
    [
        pytest.param(
            "", 1, ["wants version 1, and `a` serves only 3 by its version policy"], id="latest"
        ),
        pytest.param("version_policy { all { } }", 1, [], id="all"),
        pytest.param("version_policy { latest { num_versions: 2 } }", 2, [], id="the latest two"),
        pytest.param(
            "version_policy { specific { versions: [ 1, 2 ] } }",
            3,
            ["wants version 3, and `a` serves only 1, 2 by its version policy"],
            id="specific",
        ),
        pytest.param("version_policy { specific { versions: 7 } }", 3, [], id="none is R003 alone"),
    ],
)
def test_a_step_may_want_the_versions_that_the_policy_serves(
    tmp_path: Path, policy: str, version: int, expected: list[str]
) -> None:
    flow = ensemble(X, Y, f"a@{version} x=x -> h=y")
    more = {f"a/{number}/": "" for number in (2, 3)}
    configs = {**files(flow, a=model("x:FP32[4]", "h:FP32[4]", more=policy)), **more}
    found_here = lines(found(tmp_path, configs, STEP_CHECKS))
    start = "error flow/config.pbtxt:5 E014 step 0 (`a`) "
    assert found_here == [f"{start}{text}" for text in expected]


def test_without_the_whole_repository_a_model_may_be_elsewhere(tmp_path: Path) -> None:
    flow = files(ensemble(X, Y, "gone x=x -> h=y"))
    assert found(tmp_path, flow, CHECKS, whole=False) == ()


def test_code_that_adds_to_its_config_may_have_other_tensors(tmp_path: Path) -> None:
    flow = dict(files(ensemble(X, Y, "a x=x q=x -> h=y", batch=8)))
    flow["a/1/model.py"] = "def auto_complete_config(config): ..."
    assert found(tmp_path, flow, CHECKS) == ()


def test_a_key_given_twice_is_no_misspelt_name(tmp_path: Path) -> None:
    flow = ensemble(X, Y, "both x=x -> h=t h=u", "two p=t q=u -> y=y")
    findings = found(tmp_path, files(flow), CHECKS)
    assert [(f.code, f.message) for f in findings] == [
        ("E003", "`output_map` has the key `h` twice"),
        ("E002", "tensor `t` is read by step 1 (`two`) and written by none"),
    ]
    assert findings[1].hint == "a map with the same key twice loses the tensor of the first one"


def test_a_key_that_is_near_is_offered(tmp_path: Path) -> None:
    findings = found(tmp_path, files(ensemble(X, Y, "a X=x -> h=y")), CHECKS)
    assert [finding.hint for finding in findings] == ["did you mean `x`?"]


ROWS = {
    "det": model("x:FP32[-1,4]", "h:FP32[-1,4]"),
    "pair": model("x:FP32[-1,4]", "h:FP32[2,4]"),
    "many": model("x:FP32[-1,4]", "h:FP32[20,4]"),
    "mean": model("x:FP32[-1,4]", "h:FP32[4]"),
    "take2": model("h:FP32[2,4]", "y:FP32[-1,4]"),
    "w": model("x:FP32[-1]", "h:FP32[-1]"),
    "eight": model("h:FP32[8]", "y:FP32[8]"),
    "five": model("h:FP32[5]", "y:FP32[5]"),
}

REQUEST_MISTAKES = [
    pytest.param(
        ensemble(X, Y, "det x=x -> h=t", "two4 p=t q=x -> y=y", batch=4),
        [
            "warning 6 E015 step 1 (`two4`) joins `x`, which has the rows of the request, with "
            "`t`, "
            "which has as many rows as step 0 (`det`) gives: a request fails where the two differ"
        ],
        id="a free number of rows joined with those of the request",
    ),
    pytest.param(
        ensemble(X, Y, "mean x=x -> h=t", "two4 p=t q=x -> y=y", batch=4),
        [
            "warning 6 E015 step 1 (`two4`) joins `x`, which has the rows of the request, with "
            "`t`, "
            "which has 1 row: a request fails where the two differ"
        ],
        id="one row joined with those of the request",
    ),
    pytest.param(
        ensemble(XN, YN, "det x=x -> h=t", "two4 p=t q=x -> y=y"),
        [
            "warning 6 E015 step 1 (`two4`) joins `x`, which has the rows of the request, with "
            "`t`, which has as many rows as step 0 (`det`) gives: a request fails where the two "
            "differ"
        ],
        id="the same in an ensemble that does not batch",
    ),
    pytest.param(
        ensemble(XN, YN, "pair x=x -> h=t", "mean x=x -> h=u", "two4 p=t q=u -> y=y"),
        [
            "warning 7 E015 step 2 (`two4`) joins `t`, which has 2 rows, with `u`, which has 1 "
            "row: a request fails where the two differ"
        ],
        id="two fixed numbers of rows",
    ),
    pytest.param(
        ensemble(XN, YN, "det x=x -> h=t", "det x=x -> h=u", "two4 p=t q=u -> y=y"),
        [],
        id="two steps that are free to choose",
    ),
    pytest.param(
        ensemble(X, Y, "mean x=x -> h=t", "two4 p=t q=x -> y=y", batch=1),
        [],
        id="one row where a request has one",
    ),
    pytest.param(
        ensemble(X, Y, "det x=x -> h=t", "b4 h=t -> y=y", batch=4),
        [],
        id="a free number of rows alone",
    ),
    pytest.param(
        ensemble(X, Y, "mean x=x -> h=y", batch=4),
        ["warning 4 E015 output `y` has 1 row, however many the request has"],
        id="an output that lost the batch",
    ),
    pytest.param(
        ensemble(X, Y, "pair x=x -> h=t", "b4 h=t -> y=y", batch=4),
        ["warning 4 E015 output `y` has 2 rows, however many the request has"],
        id="an output with a fixed number of rows",
    ),
    pytest.param(
        ensemble(XN, YN, "many x=x -> h=t", "b4 h=t -> y=y"),
        [
            "warning 6 E017 tensor `t` is [20,4] as `h` of step 0 (`many`) and [batch,4] as `h` of "
            "step 1 (`b4`): that is a batch of 20, and it takes at most 4"
        ],
        id="more rows than a step takes",
    ),
    pytest.param(
        ensemble(X, Y, "a4 x=x -> h=t", "b h=t -> y=y", batch=4),
        [
            "warning 4 E015 output `y` has 1 row, however many the request has",
            "warning 6 E017 tensor `t` is [batch,4] as `h` of step 0 (`a4`) and [4] as `h` of step "
            "1 (`b`): only a batch of 1 fits",
        ],
        id="a batch for a model that takes none",
    ),
    pytest.param(
        ensemble(X, Y, "a4 x=x -> h=t", "b h=t -> y=y", batch=1),
        [],
        id="a batch of one for a model that takes none",
    ),
    pytest.param(
        ensemble(X, Y, "a4 x=x -> h=t", "take2 h=t -> y=y", batch=4),
        [
            "warning 6 E017 tensor `t` is [batch,4] as `h` of step 0 (`a4`) and [2,4] as `h` of "
            "step 1 (`take2`): only a batch of 2 fits"
        ],
        id="a batch for a model that takes two rows",
    ),
    pytest.param(
        ensemble("x:FP32[-1]", "y:FP32[8]", "w x=x -> h=t", "eight h=t -> y=y"),
        [
            "warning 6 E017 tensor `t` is [-1] as `h` of step 0 (`w`) and [8] as `h` of step 1 "
            "(`eight`): only a request tells whether it fits"
        ],
        id="an open size for a fixed one",
    ),
    pytest.param(
        ensemble("h:FP32[-1]", "y:FP32[8]", "eight h=h -> y=y"),
        [
            "info 5 E017 tensor `h` is [-1] as the ensemble's input and [8] as `h` of step 0 "
            "(`eight`): only a request tells whether it fits"
        ],
        id="an open input is in the hands of the caller",
    ),
    pytest.param(
        ensemble(X, "h:FP32[4] y:FP32[-1]", "w x=x -> h=h", "a x=x -> h=y"),
        [
            "info 4 E017 tensor `h` is [-1] as `h` of step 0 (`w`) and [4] as the ensemble's "
            "output: only a request tells whether it fits"
        ],
        id="an open size for a fixed output, and not the other way round",
    ),
    pytest.param(
        ensemble(X, "t:FP32[-1] y:FP32[5]", "a x=x -> h=t", "five h=t -> y=y"),
        [
            "warning 4 E019 output `t` is also read by step 1 (`five`): a request for only some of "
            "the outputs fails",
            "warning 7 E017 tensor `t` is [4] as `h` of step 0 (`a`) and [5] as `h` of step 1 "
            "(`five`): each request fails",
        ],
        id="sizes that Triton never compares, for the ensemble leaves both open",
    ),
    pytest.param(
        ensemble(X, "mid:FP32[4] y:FP32[4]", "a x=x -> h=mid", "b h=mid -> y=y"),
        [
            "warning 4 E019 output `mid` is also read by step 1 (`b`): a request for only some of "
            "the outputs fails"
        ],
        id="an output that a step reads",
    ),
    pytest.param(
        ensemble(X, "x:FP32[4] y:FP32[4]", "a x=x -> h=y"),
        [
            "warning 4 E019 output `x` is also read by step 0 (`a`): a request for only some of "
            "the "
            "outputs fails"
        ],
        id="an input that is given back",
    ),
    pytest.param(
        ensemble(
            f"{X} z:FP32[4]", "y:FP32[4] q:FP32[4]", "a x=x -> h=t", "b h=t -> y=y", "a x=z -> h=q"
        ),
        [
            "warning 5 E019 a request for output `y` alone fails: Triton drops step 0 (`a`), which "
            "it needs, with those that it does not need"
        ],
        id="an input that only one output needs",
    ),
    pytest.param(
        ensemble(X, "mid:FP32[4] y:FP32[4]", "both x=x -> h=mid k=t", "two p=mid q=t -> y=y"),
        [
            "warning 4 E019 output `mid` is also read by step 1 (`two`): a request for only some "
            "of "
            "the outputs fails"
        ],
        id="an output that a step reads, beside another one",
    ),
    pytest.param(
        ensemble(X, "p:FP32[4] q:FP32[4]", "a x=x -> h=p", "a x=x -> h=q"),
        [],
        id="outputs side by side",
    ),
    pytest.param(
        ensemble(X, "y:FP32[4] z:FP32[4]", "a x=x -> h=t", "b h=t -> y=y", "b h=t -> y=z"),
        [],
        id="a tensor of two outputs that is none itself",
    ),
]


@pytest.mark.parametrize(("flow", "expected"), REQUEST_MISTAKES)
def test_what_only_a_request_would_show(tmp_path: Path, flow: str, expected: list[str]) -> None:
    assert said(tmp_path, flow, **ROWS) == expected


def test_a_step_reads_what_others_before_it_write(tmp_path: Path) -> None:
    flow = ensemble(X, Y, "two p=x q=v -> y=y", "b h=u -> y=v", "a x=x -> h=u")
    wiring = wiring_of(repository(tmp_path, files(flow)).models["flow"])
    assert [step.number for step in wiring.order] == [2, 1, 0]
    assert [step.number for step in wiring.before("v")] == [1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_steps_run_in_an_order_or_a_circle_is_named(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    names = [f"t{number}" for number in range(6)]
    steps = [f"two p={random.choice(['x', *names])} q=x -> y={name}" for name in names]
    wiring = wiring_of(repository(tmp_path, files(ensemble(X, Y, *steps))).models["flow"])
    ran: set[str] = {"x"}
    for step in wiring.order:
        assert set(step.inputs.values()) <= ran
        ran |= set(step.outputs.values())
    for circle in wiring.circles:
        for giver, taker in zip(circle, (*circle[1:], circle[0]), strict=True):
            assert set(giver.outputs.values()) & set(taker.inputs.values())
    assert (len(wiring.order) < len(wiring.steps)) == bool(wiring.circles)


def test_a_large_ensemble_is_read_in_time(tmp_path: Path) -> None:
    steps = [f"a x=t{number} -> h=t{number + 1}" for number in range(2000)]
    flow = ensemble("t0:FP32[4]", "t2000:FP32[4]", *steps)
    assert said(tmp_path, flow) == []
    back = ensemble(X, Y, *(f"two p=x q=t{n} -> y=t{n}" for n in range(2000)))
    assert len(found(tmp_path, files(back), ENSEMBLE_CHECKS)) == 2001
