"""Edges that make a node wait for nothing."""

from __future__ import annotations

from pipelines import graph_of, source

from mmctl.pipeline.needless import needless_edges, rewired

STEPS = """
import json

def note(text, y):
    return {"text": text, "state": [json.dumps(v) for v in y]}

def more(text, state):
    return {"text": text, "state": [s + "!" for s in state]}

def clean(text):
    return {"text": [t.strip() for t in text]}

def answer(state, text):
    return {"state": state + "."}
"""
CHAIN = """
pipeline: demo
inputs: {text: string, x: fp32}
nodes:
  first:  {model: double, inputs: {x: x}}
  noted:  {step: note, inputs: {text: text, y: first.y}, outputs: {text: string, state: string}}
  second: {model: speller, inputs: {text: noted.text}}
  noted2:
    step: more
    inputs: {text: noted.text, state: noted.state}
    outputs: {text: string, state: string}
  third:  {model: speller, inputs: {text: "noted2.text"}}
outputs: {state: noted2.state, second: second.text, third: third.text}
"""


def told(text: str, steps: str = STEPS) -> list[str]:
    pipeline = source(text, steps=steps)
    return [edge.told for edge in needless_edges(graph_of(pipeline), pipeline)]


def test_who_reads_what_a_step_only_hands_on_may_read_it_where_it_comes_from() -> None:
    assert told(CHAIN) == [
        "`second` waits for `noted`, which only hands on `text`: `text` may read that",
        "`noted2` waits for `noted`, which only hands on `text`: `text` may read that",
        "`third` waits for `noted2` and `noted`, which only hand on `text`: `text` may read that",
    ]


def test_the_pipeline_that_removes_them_differs_in_nothing_else() -> None:
    pipeline = source(CHAIN, steps=STEPS)
    edges = needless_edges(graph_of(pipeline), pipeline)
    text = CHAIN.lstrip("\n")
    changed = rewired(text, edges, pipeline)
    assert changed == (
        text.replace("text: noted.text", "text: text").replace('"noted2.text"', '"text"')
    )
    after = source(changed, steps=STEPS)
    assert needless_edges(graph_of(after), after) == ()
    assert graph_of(after).before()["third"] == set()


def test_a_step_that_changes_what_it_hands_on_is_waited_for() -> None:
    text = """
        pipeline: demo
        inputs: {text: string}
        nodes:
          noted:  {step: clean, inputs: {text: text}, outputs: {text: string}}
          second: {model: speller, inputs: {text: noted.text}}
        outputs: {second: second.text}
        """
    assert told(text) == []


def test_a_step_that_may_answer_something_else_is_waited_for() -> None:
    text = """
        pipeline: demo
        inputs: {text: string}
        nodes:
          noted:
            step: handed
            inputs: {text: text}
            outputs: {text: string}
            on_error: {text: ""}
          second: {model: speller, inputs: {text: noted.text}}
        outputs: {second: second.text}
        """
    assert told(text, "def handed(text):\n    return {'text': text}\n") == []


def test_an_input_that_nobody_looks_at_is_told() -> None:
    text = """
        pipeline: demo
        inputs: {text: string, x: fp32}
        nodes:
          first: {model: double, inputs: {x: x}}
          last:  {step: lonely, inputs: {text: text, y: first.y}, outputs: {state: string}}
        outputs: {state: last.state}
        """
    steps = "def lonely(text, y):\n    return {'state': text + '.'}\n"
    assert told(text, steps) == ["`last` never reads its input `y` (first.y)"]
    pipeline = source(text, steps=steps)
    edges = needless_edges(graph_of(pipeline), pipeline)
    assert rewired("unchanged", edges, pipeline) == "unchanged"


def test_a_function_that_steps_import_is_read_where_it_is() -> None:
    steps = "from shared import note as noted\n"
    shared = "def note(text, y):\n    return {'text': text, 'state': [str(v) for v in y]}\n"
    text = """
        pipeline: demo
        inputs: {text: string, x: fp32}
        nodes:
          first: {step: noted, inputs: {text: text, y: x}, outputs: {text: string, state: string}}
          second: {model: speller, inputs: {text: first.text}}
        outputs: {second: second.text, state: first.state}
        """
    pipeline = source(text, steps=steps, common={"shared": shared})
    [edge] = needless_edges(graph_of(pipeline), pipeline)
    assert str(edge.instead) == "text"


def test_a_later_import_of_all_names_may_have_taken_the_place_of_a_function() -> None:
    pipeline = source(CHAIN, steps=STEPS + "\nfrom numpy import *\n")
    assert needless_edges(graph_of(pipeline), pipeline) == ()
