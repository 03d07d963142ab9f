"""List tensors and `foreach`: who gives them, who takes them, and how they are typed."""

from __future__ import annotations

import pytest
from pipelines import checked, graph_of, lines, source

from mmctl.pipeline.graph import Wire

TEXT = """
pipeline: demo
inputs: {page: bytes, x: fp32}
nodes:
  cut:
    step: cut
    inputs: {page: page}
    outputs: {parts: "fp32[*,4]", sizes: "fp32[*]"}
  head: {model: head, inputs: {embedding: cut.parts}, foreach: cut.parts}
  mark: {step: mark, foreach: cut.sizes, inputs: {size: cut.sizes, x: x}, outputs: {text: string}}
  tell: {step: tell, inputs: {scores: head.score, texts: mark.text}, outputs: {text: string}}
outputs: {text: tell.text}
"""
STEPS = """
def cut(page):
    return {"parts": [[]], "sizes": [[]]}

def mark(size, x):
    return {"text": x}

def tell(scores, texts):
    return {"text": texts}
"""


def test_a_node_with_foreach_runs_for_each_item_and_gives_list_tensors() -> None:
    graph = graph_of(source(TEXT, steps=STEPS))
    head = graph.node("head")
    assert head.policy.foreach == Wire("cut", "parts")
    assert [str(spec) for spec in head.gives] == ["probs: fp32[2]", "score: fp32"]
    assert str(graph.spec(Wire("head", "score"))) == "score: fp32[*]"
    assert str(graph.spec(Wire("cut", "parts"))) == "parts: fp32[*,4]"


def test_a_step_takes_items_under_foreach_and_whole_lists_without() -> None:
    graph = graph_of(source(TEXT, steps=STEPS))
    assert [str(spec) for spec in graph.node("mark").takes] == ["size: fp32", "x: fp32"]
    assert [str(spec) for spec in graph.node("tell").takes] == [
        "scores: fp32[*]",
        "texts: string[*]",
    ]


def test_a_ready_made_step_runs_for_each_item_too() -> None:
    ready = "step: {use: threshold, at: 0.5, labels: [low, high]}, inputs: {score: cut.sizes}}"
    start = TEXT.index("  mark:")
    text = f"{TEXT[:start]}  mark: {{foreach: cut.sizes, {ready}\n{TEXT[TEXT.index('  tell:') :]}"
    text = text.replace("mark.text", "mark.label").replace(", x: fp32", "")
    graph = graph_of(source(text, steps=STEPS))
    assert [str(spec) for spec in graph.node("mark").takes] == ["score: fp32"]
    assert str(graph.spec(Wire("mark", "label"))) == "label: string[*]"


def test_items_are_called_in_batches_of_their_own() -> None:
    """`head` takes 8 at a time; the pipeline takes as many rows as steps do."""
    assert graph_of(source(TEXT, steps=STEPS)).max_batch == 32


def test_a_model_without_batch_axis_runs_item_by_item() -> None:
    text = """
    pipeline: demo
    inputs: {page: bytes}
    nodes:
      cut: {step: cut, inputs: {page: page}, outputs: {ids: "int64[*,-1,-1]"}}
      tag: {model: lac, foreach: cut.ids, inputs: {x: cut.ids}}
      tell: {step: tell, inputs: {tags: tag.tags}, outputs: {text: string}}
    outputs: {text: tell.text}
    """
    steps = (
        "def cut(page):\n    return {'ids': [[]]}\n\ndef tell(tags):\n    return {'text': ['']}\n"
    )
    assert graph_of(source(text, steps=steps)).max_batch == 32


@pytest.mark.parametrize(
    ("old", "new", "expected", "hint"),
    [
        pytest.param("foreach: cut.parts", "foreach: x",
                     "8:64 Y132 `head.foreach`: `x` is fp32, not a list tensor",
                     'a step gives one that declares it: outputs: {x: "fp32[*]"}',
                     id="foreach over a tensor without items"),
        pytest.param("foreach: cut.parts", "foreach: cut.part",
                     "8:64 Y106 `cut` has no output `part`", "did you mean `parts`?",
                     id="foreach over an unknown tensor"),
        pytest.param("foreach: cut.parts", "foreach: cut.sizes", "8:64 Y132 `head.foreach` runs "
                     "over `cut.sizes`, but no input of `head` takes it",
                     "wire it to the input that gets one item: inputs: {...: cut.sizes}",
                     id="foreach over what no input takes"),
        pytest.param(", foreach: cut.parts", "", "8:43 Y132 `head.embedding` takes fp32[4], but "
                     "`cut.parts` is the list tensor fp32[*,4]",
                     "run the node for each item: foreach: cut.parts",
                     id="a list tensor fed to a model"),
        pytest.param("[*,4]", "[*,3]",
                     "8:43 Y110 `head.embedding` takes fp32[4], but an item of `cut.parts` is "
                     "fp32[3]", None,
                     id="items of another shape"),
        pytest.param("fp32[*,4]", "int32[*,4]",
                     "8:43 Y109 `head.embedding` takes fp32[4], but an item of `cut.parts` is "
                     "int32[4]",
                     "Triton never casts: cast in a step, or change the producer",
                     id="items of another type"),
        pytest.param("{embedding: cut.parts}", "{embeding: cut.parts}",
                     "8:32 Y108 `head` takes no input `embeding`", "did you mean `embedding`?",
                     id="an input that the model does not have"),
        pytest.param("{text: string}}\n  tell", '{text: "string[*]"}}\n  tell',
                     "9:91 Y132 `mark.text` is a list for each item: there are no lists of lists",
                     "declare what it gives for one item; `foreach` makes a list of it",
                     id="a list for each item"),
        pytest.param("x: fp32", 'x: "fp32[*]"', "2:26 Y132 the input `x` is the list tensor "
                     "fp32[*]: callers cannot send one",
                     "take what it is made from, and make the list in a step",
                     id="a list tensor sent by callers"),
        pytest.param("outputs: {text: tell.text}", "outputs: {text: tell.text, parts: cut.parts}",
                     "11:35 Y132 `parts` shows the list tensor `cut.parts` (fp32[*,4]): answers "
                     "cannot carry one", "make one value a row of it in a step, such as JSON",
                     id="a list tensor in the answer"),
        pytest.param("text: tell.text}", "text: tell.text, scores: head.score}",
                     "11:36 Y132 `scores` shows the list tensor `head.score` (fp32[*]): answers "
                     "cannot carry one", "make one value a row of it in a step, such as JSON",
                     id="what foreach gives in the answer"),
        pytest.param("fp32[*,4]", "fp32[4,*]",
                     "7:22 Y103 `fp32[4,*]`: `*` may only stand first", None,
                     id="items are the first axis"),
    ],
)  # fmt: skip
def test_a_list_tensor_in_the_wrong_place_is_found(
    old: str, new: str, expected: str, hint: str | None
) -> None:
    assert old in TEXT
    result = checked(TEXT.replace(old, new), steps=STEPS)
    assert (lines(result)[0], result.findings[0].hint) == (expected, hint)
    assert len(result.findings) == 1
    assert result.graph is None


def test_a_ready_made_step_takes_no_whole_list() -> None:
    ready = "{step: {use: join}, inputs: {a: mark.text, b: mark.text}}"
    start, end = TEXT.index("{step: tell"), TEXT.index("\noutputs:")
    text = f"{TEXT[:start]}{ready}{TEXT[end:]}".replace("tell.text}", "tell.joined}")
    found = lines(checked(text, steps=STEPS))
    assert [line.split()[1] for line in found] == ["Y132", "Y132"]
    assert found[0] == (
        "10:41 Y132 `tell.a` takes string, but `mark.text` is the list tensor string[*]"
    )
