"""The type check: which pipelines are right, and what is said about those that are not."""

from __future__ import annotations

import pytest
from pipelines import MODELS, checked, lines, source

from mmctl.diagnostics import Severity
from mmctl.pipeline import WIRING_RULES, check_pipeline

STEPS = """
import numpy as np

def count(text):
    return {"hits": np.array([len(t) for t in text], np.int32)}

def judge(score, hits):
    return {"label": ["bad"] * len(score)}
"""

GOOD = """
pipeline: demo
inputs: {text: string, x: fp32}
nodes:
  words: {step: count, inputs: {text: text}, outputs: {hits: int32}, instances: {cpu: 2}}
  twice: {model: double, inputs: {x: x}}
  again: {model: double, inputs: {x: twice.y}}
  last:  {step: judge, inputs: {score: again.y, hits: words.hits}, outputs: {label: string}}
outputs: {verdict: last.label, score: twice.y}
"""


def test_a_right_pipeline_has_no_findings_and_a_typed_graph() -> None:
    result = checked(GOOD, steps=STEPS)
    assert lines(result) == []
    assert result.graph is not None
    assert [node.name for node in result.graph.nodes] == ["words", "twice", "again", "last"]
    assert [str(spec) for spec in result.graph.output_specs()] == ["verdict: string", "score: fp32"]
    assert result.calls == ("double",)


def test_nodes_may_be_written_in_any_order() -> None:
    first, second = (line for line in GOOD.splitlines() if "double" in line)
    result = checked(GOOD.replace(f"{first}\n{second}", f"{second}\n{first}"), steps=STEPS)
    assert result.graph is not None
    names = [node.name for node in result.graph.nodes]
    assert names.index("twice") < names.index("again") < names.index("last")


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            "pipeline: demo", "pipeline: dema",
            "1:11 Y101 the pipeline is called `dema`, its folder `demo`",
            id="a pipeline has the name of its folder",
        ),
        pytest.param(
            "twice", "a__b",
            "5:3 Y101 `a__b`: `__` is reserved for folders that mmctl generates",
            id="node names become folders",
        ),
        pytest.param(
            "twice", "next",
            "5:3 Y101 `next` is reserved: a candidate of the pipeline is served under that name",
            id="the name of candidates",
        ),
        pytest.param(
            "verdict: last.label", "my-verdict: last.label",
            "8:11 Y102 `my-verdict` is not a tensor name: use letters, digits and _, "
            "no digit first",
            id="tensor names are identifiers",
        ),
        pytest.param(
            "verdict: last.label", "x__y: last.label",
            "8:11 Y102 `x__y`: `__` is reserved for the copies that mmctl makes",
            id="copies have names of their own",
        ),
        pytest.param(
            "x: fp32}", "x: float}",
            "2:27 Y103 `float` is not a tensor type; write one of bool, uint8, uint16, uint32, "
            "uint64, int8, int16, int32, int64, fp16, fp32, fp64, bf16, string, bytes, with the "
            'shape in brackets: "fp32[384]"',
            id="types are checked",
        ),
        pytest.param(
            "model: double, inputs: {x: x}", "modle: double, inputs: {x: x}",
            "5:3 Y104 `twice` has no `model` and no `step`",
            id="a key names the kind",
        ),
        pytest.param(
            "model: double, inputs: {x: x}", "model: double, step: count, inputs: {x: x}",
            "5:3 Y104 `twice` is a model and a step: a node is one of them",
            id="a node is of one kind",
        ),
        pytest.param(
            "model: double, inputs: {x: x}", "model: duoble, inputs: {x: x}",
            "5:18 Y105 `duoble` is neither a model that was exported nor a pipeline",
            id="models exist",
        ),
        pytest.param(
            "score: again.y", "score: again.z", "7:40 Y106 `again` has no output `z`",
            id="tensors exist",
        ),
        pytest.param(
            "score: again.y", "score: agan.y", "7:40 Y106 `agan.y`: there is no node `agan`",
            id="nodes exist",
        ),
        pytest.param(
            "score: again.y", "score: twice", "7:40 Y106 `twice` is no input of the pipeline",
            id="a bare name is an input of the pipeline",
        ),
        pytest.param(
            "model: double, inputs: {x: x}", "model: double",
            "5:3 Y107 `twice` needs its input `x: fp32`",
            id="required inputs are wired",
        ),
        pytest.param(
            "{x: twice.y}", "{x: twice.y, z: x}", "6:47 Y108 `again` takes no input `z`",
            id="inputs are those of the model",
        ),
        pytest.param(
            "{x: twice.y}", "{x: words.hits}",
            "6:38 Y109 `again.x` takes fp32, but `words.hits` is int32",
            id="element types are equal",
        ),
        pytest.param(
            "x: fp32}", 'x: "fp32[3]"}', "5:38 Y110 `twice.x` takes fp32, but `x` is fp32[3]",
            id="shapes fit",
        ),
        pytest.param(
            "{x: x}", "{x: again.y}",
            "5:38 Y112 nodes feed each other in a circle: twice -> again -> twice",
            id="circles are shown with their path",
        ),
        pytest.param(
            "x: fp32}", "x: fp32, y: fp32}", "2:33 Y113 no node reads the input `y`",
            id="inputs are used",
        ),
        pytest.param(
            "score: again.y", "score: x", "6:3 Y114 `again` reaches no output of the pipeline",
            id="nodes reach an output",
        ),
        pytest.param(
            "score: twice.y", "same: x", "8:38 Y115 `same` shows the input `x`, which no node made",
            id="outputs are made by nodes",
        ),
        pytest.param(
            "score: twice.y", "x: twice.y",
            "8:32 Y101 `x` is an input too: Triton keeps both under one name",
            id="an output is not called like an input",
        ),
        pytest.param(
            "inputs: {text: string", "max_batch: 16\ninputs: {text: string",
            "2:12 Y116 `max_batch` is 16, but `twice` takes at most 8",
            id="no larger batch than the callees take",
        ),
        pytest.param(
            "step: count", "step: coutn", "4:17 Y121 steps.py has no function `coutn`",
            id="step functions exist",
        ),
        pytest.param(
            "inputs: {text: text}", "inputs: {txt: text}",
            "4:33 Y122 `count` has no parameter `txt`",
            id="inputs are parameters",
        ),
        pytest.param(
            "hits: words.hits}", "}",
            "7:24 Y122 `judge` needs `hits`, which `last` has no input for",
            id="parameters are inputs",
        ),
        pytest.param(
            "{label: string}", "{label: string, why: string}",
            "steps.py:8:5 Y123 `last.why` is declared, but not returned",
            id="declared outputs are returned",
        ),
        pytest.param(
            ", outputs: {label: string}}", "}", "7:3 Y124 `last` declares no outputs",
            id="steps declare their outputs",
        ),
        pytest.param(
            "step: count, ", "step: {use: cuont}, ",
            "4:23 Y125 there is no ready-made step `cuont`",
            id="ready-made steps exist",
        ),
        pytest.param(
            "instances: {cpu: 2}", "batching: none", "4:80 Y129 a step keeps its batch axis",
            id="steps are batched",
        ),
        pytest.param(
            "hits: int32}", "hits: bf16}",
            "4:3 Y129 `words.hits` is bf16, which numpy does not have",
            id="steps have no bf16",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_found_at_its_place(old: str, new: str, expected: str) -> None:
    result = checked(changed(old, new), steps=STEPS)
    assert lines(result) == [expected]
    assert result.graph is None


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param("model: double, inputs: {x: x}", "model: duoble, inputs: {x: x}",
                     "did you mean `double`?", id="of a model"),
        pytest.param("score: again.y", "score: agan.y", "did you mean `again`?", id="of a node"),
        pytest.param("verdict: last.label", "verdict: last.lable", "did you mean `label`?",
                     id="of a tensor"),
        pytest.param("score: again.y", "score: again",
                     "for an output of that node write `again.y`", id="of a forgotten tensor"),
        pytest.param("step: count", "step: coutn", "did you mean `count`?", id="of a function"),
        pytest.param("hits: words.hits}", "hit: words.hits}", "did you mean `hits`?",
                     id="of a parameter"),
        pytest.param("instances:", "instance:", "did you mean `instances`?", id="of a key"),
    ],
)  # fmt: skip
def test_the_nearest_right_name_is_offered(old: str, new: str, hint: str) -> None:
    result = checked(changed(old, new), steps=STEPS)
    assert hint in [finding.hint for finding in result.findings]


def test_no_name_is_offered_that_is_taken_already() -> None:
    text = changed("{x: twice.y}", "{x: twice.y, xx: x}")
    [finding] = checked(text, steps=STEPS).findings
    assert (finding.code, finding.hint) == ("Y108", None)


def test_a_mistake_in_a_function_is_told_once_however_many_nodes_run_it() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {step: f, inputs: {x: x}, outputs: {y: fp32}}
      b: {step: f, inputs: {x: a.y}, outputs: {y: fp32}}
    outputs: {y: b.y}
    """
    result = checked(text, steps="def f(x):\n    print(x)\n")
    assert lines(result) == ["steps.py:1:1 Y123 `f` returns nothing"]


def test_all_mistakes_are_found_at_once_in_the_order_of_the_file() -> None:
    text = """
    pipeline: demo
    colour: red
    inputs: {text: string, x: float}
    nodes:
      words: {step: cuont, inputs: {text: text}, outputs: {hits: int32}}
      twice: {model: double, inputs: {x: words.hits}, timeout_ms: 5}
      lost:  {model: nowhere, inputs: {x: twice.y}}
    outputs: {y: twice.z, l: lost.any}
    """
    codes = [f"{f.line} {f.code}" for f in checked(text, steps=STEPS).findings]
    assert codes == ["2 Y003", "3 Y103", "5 Y121", "6 Y109", "7 Y105", "8 Y106"]


def test_what_is_wrong_already_is_not_reported_by_all_who_touch_it() -> None:
    text = changed("model: double, inputs: {x: x}", "model: nowhere, inputs: {any: x}")
    assert [f.code for f in checked(text, steps=STEPS).findings] == ["Y105"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("{x: twice.y}", "{x: twcie.y}", id="a misspelt node"),
        pytest.param("{x: twice.y}", "{x: twice.z}", id="a misspelt tensor"),
        pytest.param("{x: x}", "{x: xx}", id="a misspelt input of the pipeline"),
        pytest.param("{text: text}", "{txt: text}", id="a misspelt parameter"),
        pytest.param("{x: x}", "{xx: x}", id="a misspelt input of a model"),
        pytest.param(", inputs: {x: x}", "", id="no inputs at all"),
        pytest.param("verdict: last.label", "verdict: lost.label", id="an output of no node"),
        pytest.param("verdict: last.label", "verdict: text", id="an output that is an input"),
        pytest.param("outputs: {label: string}", "outputs: {label: strong}", id="a wrong type"),
    ],
)
def test_one_mistake_is_one_finding(old: str, new: str) -> None:
    """What cannot be reached because of it goes without saying."""
    assert len(lines(checked(changed(old, new), steps=STEPS))) == 1


def test_a_misspelt_key_does_not_hide_what_else_is_missing() -> None:
    text = """
    pipeline: demo
    inputs: {ids: "int64[-1]"}
    nodes:
      e: {model: encoder, inputs: {input_idz: ids}}
    outputs: {e: e.embedding}
    """
    assert [f.message for f in checked(text).findings] == [
        "`e` needs its input `input_ids: int64[-1]`",
        "`e` needs its input `attention_mask: int64[-1]`",
        "`e` takes no input `input_idz`",
    ]


def test_each_of_two_circles_is_found() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: b.y}}
      b: {model: double, inputs: {x: a.y}}
      c: {model: double, inputs: {x: d.y}}
      d: {model: double, inputs: {x: c.y}}
      e: {model: double, inputs: {x: x}}
    outputs: {b: b.y, d: d.y, e: e.y}
    """
    messages = [f.message for f in checked(text).findings]
    assert [m.partition(": ")[2] for m in messages] == ["a -> b -> a", "c -> d -> c"]


def test_a_node_that_feeds_itself_is_a_circle() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: a.y}}
      b: {model: double, inputs: {x: x}}
    outputs: {a: a.y, b: b.y}
    """
    assert "4:34 Y112 nodes feed each other in a circle: a -> a" in lines(checked(text))


def test_a_chain_of_nodes_that_nobody_sees_is_named_whole() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: a.y}}
      c: {model: double, inputs: {x: x}}
    outputs: {y: c.y}
    """
    assert [f.message.split("`")[1] for f in checked(text).findings] == ["a", "b"]


def test_a_free_axis_into_a_fixed_one_is_only_remarked() -> None:
    text = """
    pipeline: demo
    inputs: {e: "fp32[-1]"}
    nodes:
      head: {model: head, inputs: {embedding: e}}
    outputs: {score: head.score}
    """
    result = checked(text)
    assert [(f.code, f.severity) for f in result.findings] == [("Y111", Severity.INFO)]
    assert result.graph is not None


def test_string_and_bytes_are_one_type_to_triton() -> None:
    text = """
    pipeline: demo
    inputs: {raw: bytes}
    nodes:
      spell: {model: speller, inputs: {text: raw}}
    outputs: {text: spell.text}
    """
    assert lines(checked(text)) == []


def test_optional_inputs_of_a_model_may_be_left_out() -> None:
    text = """
    pipeline: demo
    inputs: {a: string, b: string}
    nodes:
      one: {model: speller, inputs: {text: a}}
      two: {model: speller, inputs: {text: one.text, hint: b}}
    outputs: {out: two.text}
    """
    assert lines(checked(text)) == []


def test_tensors_of_a_foreign_model_may_have_any_name() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      net: {model: foreign, inputs: {input/0: x}}
    outputs: {probs: net.4195}
    """
    assert lines(checked(text)) == []


@pytest.mark.parametrize(
    ("nodes", "max_batch"),
    [
        pytest.param("a: {model: double, inputs: {x: x}}", 8, id="what its only model takes"),
        pytest.param("a: {step: f, inputs: {x: x}, outputs: {y: fp32}}", 32, id="of steps alone"),
        pytest.param("a: {step: f, inputs: {x: x}, outputs: {y: fp32}, batching: {max_batch: 4}}",
                     4, id="what a step says"),
        pytest.param("a: {step: f, inputs: {x: x}, outputs: {y: fp32}, "
                     "batching: {max_delay_ms: 4}}", 32, id="a step that says something else"),
        pytest.param("b: {model: double, inputs: {x: x}}\n  "
                     "a: {step: f, inputs: {x: b.y}, outputs: {y: fp32}, batching: {max_batch: 4}}",
                     4, id="a step that takes less than a model"),
        pytest.param("b: {model: double, inputs: {x: x}}\n  "
                     "a: {step: f, inputs: {x: b.y}, outputs: {y: fp32}, batching: {max_batch: 9}}",
                     8, id="a step that takes more than a model"),
    ],
)  # fmt: skip
def test_the_batch_of_a_pipeline_is_the_least_of_its_callees(nodes: str, max_batch: int) -> None:
    text = f"pipeline: demo\ninputs: {{x: fp32}}\nnodes:\n  {nodes}\noutputs: {{y: a.y}}\n"
    graph = checked(text, steps="def f(x):\n    return {'y': x}\n").graph
    assert graph is not None
    assert graph.max_batch == max_batch


def test_max_batch_lowers_the_batch_of_a_pipeline() -> None:
    graph = checked(f"max_batch: 2{GOOD}", steps=STEPS).graph
    assert graph is not None
    assert graph.max_batch == 2


UNBATCHED = """
pipeline: demo
inputs: {ids: "int64[-1,-1]"}
nodes:
  tag: {model: lac, inputs: {x: ids}}
outputs: {tags: tag.tags}
"""


def test_a_pipeline_of_unbatched_models_has_no_batch_axis() -> None:
    graph = checked(UNBATCHED).graph
    assert graph is not None
    assert graph.max_batch == 0
    assert "Y116" in [f.code for f in checked(f"max_batch: 2{UNBATCHED}").findings]


def test_an_unbatched_model_sets_no_limit_in_a_batched_pipeline() -> None:
    text = (
        UNBATCHED.replace("nodes:", "nodes:\n  twice: {model: double, inputs: {x: x}}")
        .replace('"int64[-1,-1]"}', '"int64[-1,-1]", x: fp32}')
        .replace("tag.tags}", "tag.tags, y: twice.y}")
    )
    graph = checked(text).graph
    assert graph is not None
    assert graph.max_batch == 8


@pytest.mark.parametrize("text", ["", "[]", "nodes: 3", "pipeline: demo\nnodes: {a: }\n", "a: b"])
def test_a_file_that_is_no_pipeline_is_findings(text: str) -> None:
    result = check_pipeline(source(text), MODELS)
    assert result.findings
    assert result.graph is None


def test_every_rule_has_its_own_code_and_says_why() -> None:
    codes = [rule.code for rule in WIRING_RULES]
    assert codes == sorted(set(codes))
    assert all(rule.title and rule.explanation.endswith(".") for rule in WIRING_RULES)
