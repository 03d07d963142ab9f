"""Everything the type check of a pipeline can find: one row a code, and the report it fills.

The text of a finding says what is wrong where it stands; the row says why that is wrong at all.
"""

from __future__ import annotations

from mmctl.diagnostics import Finding, Position, Rule, Severity
from mmctl.documents import Document, Key

NAME = "Y101"
TENSOR_NAME = "Y102"
TYPE = "Y103"
KIND = "Y104"
UNKNOWN_MODEL = "Y105"
UNKNOWN_REFERENCE = "Y106"
MISSING_INPUT = "Y107"
UNKNOWN_INPUT = "Y108"
DTYPE_DIFFERS = "Y109"
SHAPE_DIFFERS = "Y110"
SHAPE_OPEN = "Y111"
CYCLE = "Y112"
UNUSED_INPUT = "Y113"
UNUSED_NODE = "Y114"
OUTPUT_IS_INPUT = "Y115"
MAX_BATCH = "Y116"
FORM = "Y117"
EXPRESSION = "Y118"
POLICY = "Y119"
STEP_FILE = "Y120"
STEP_MISSING = "Y121"
STEP_PARAMETERS = "Y122"
STEP_RETURNS = "Y123"
STEP_OUTPUTS = "Y124"
READY_UNKNOWN = "Y125"
READY_OPTIONS = "Y126"
ASSET = "Y127"
PIPELINE_CYCLE = "Y128"
STEP_SETTING = "Y129"
FUSE = "Y130"
SWITCH = "Y131"
LIST = "Y132"
ABSENT = "Y133"
IDLE_POLICY = "Y134"
ASYNC = "Y135"
UNCALLABLE = "Y136"
NOT_EXPORTED = "Y137"

WIRING_RULES: tuple[Rule, ...] = (
    Rule(
        NAME,
        "name that cannot become a folder",
        "Pipelines and nodes become model folders of the repository: a-z, 0-9 and _, a letter "
        "first. `__` is kept for what mmctl generates. A pipeline has the name of its folder.",
        wrong="pipeline: Content-Moderation",
        right="pipeline: content_moderation",
    ),
    Rule(
        TENSOR_NAME,
        "tensor name that is no identifier",
        "Names of tensors become parameters of Python functions and keys of answers: letters, "
        "digits and _, no digit first. `__` is kept for the copies that mmctl makes. A model with "
        "other names gets `rename` in its model.yaml.",
        wrong="outputs: {top-1: best.label}",
        right="outputs: {top_1: best.label}",
    ),
    Rule(
        TYPE,
        "not a tensor type",
        "A type is an element type, with the shape of one row in brackets where a row holds more "
        'than one value: string, fp32, "fp32[384]", "int64[-1]". -1 is a free axis. The batch '
        "axis is never written.",
        wrong="inputs: {pixels: float[224,224,3]}",
        right='inputs: {pixels: "fp32[224,224,3]"}',
    ),
    Rule(
        KIND,
        "node of no known kind",
        "The key of a node says what it is: `model` calls a model or another pipeline, `step` "
        "runs a Python function or a ready-made step, `switch` chooses between other nodes. A node "
        "has exactly one of them.",
        wrong="nsfw: {modle: nsfw, inputs: {pixels: pixels.pixels}}",
        right="nsfw: {model: nsfw, inputs: {pixels: pixels.pixels}}",
    ),
    Rule(
        UNKNOWN_MODEL,
        "model that does not exist",
        "A node calls a folder of model_repository/ that was exported or has a config.pbtxt, or "
        "another pipeline of ensembles/.",
        wrong="nsfw: {model: nfsw, inputs: {pixels: pixels.pixels}}",
        right="nsfw: {model: nsfw, inputs: {pixels: pixels.pixels}}",
    ),
    Rule(
        UNKNOWN_REFERENCE,
        "reference to nothing",
        "A reference is `node.tensor`, split at the first dot, or the bare name of an input of "
        "the pipeline.",
        wrong="inputs: {pixels: pixel.pixels}",
        right="inputs: {pixels: pixels.pixels}",
    ),
    Rule(
        MISSING_INPUT,
        "input that nothing feeds",
        "Triton runs a model only when all of its inputs are there. Only inputs that the model "
        "declares optional may be left out.",
        wrong="encode: {model: minilm, inputs: {input_ids: tokens.input_ids}}",
        right=(
            "encode:\n"
            "  model: minilm\n"
            "  inputs: {input_ids: tokens.input_ids, attention_mask: tokens.attention_mask}"
        ),
    ),
    Rule(
        UNKNOWN_INPUT,
        "input that the model does not have",
        "The keys under `inputs` are the names of the called model, not those of the pipeline.",
        wrong="nsfw: {model: nsfw, inputs: {image: pixels.pixels}}",
        right="nsfw: {model: nsfw, inputs: {pixels: pixels.pixels}}",
    ),
    Rule(
        DTYPE_DIFFERS,
        "element types differ",
        "Triton never casts: both ends of an edge have one element type. A step can cast.",
        wrong="count: {step: count, inputs: {text: text}, outputs: {ids: int32}}",
        right="count: {step: count, inputs: {text: text}, outputs: {ids: int64}}",
    ),
    Rule(
        SHAPE_DIFFERS,
        "shapes differ",
        "Both ends of an edge have the same number of axes, and the same size where both give "
        "one. Shapes are those of one row, without the batch axis.",
        wrong="pixels: {step: {use: image, size: 256}, inputs: {image: image}}",
        right="pixels: {step: {use: image, size: 224}, inputs: {image: image}}",
    ),
    Rule(
        SHAPE_OPEN,
        "free axis meets a fixed one",
        "The server checks it only when a request runs: rows of another size fail then. Fine "
        "where the producer always gives the right size.",
        Severity.INFO,
        wrong='crop: {step: crop, inputs: {image: image}, outputs: {pixels: "fp32[-1,-1,3]"}}',
        right='crop: {step: crop, inputs: {image: image}, outputs: {pixels: "fp32[224,224,3]"}}',
    ),
    Rule(
        CYCLE,
        "nodes feed each other in a circle",
        "A pipeline runs from its inputs to its outputs; a node cannot wait for itself.",
        wrong="a: {step: first, inputs: {x: b.y}}\nb: {step: second, inputs: {x: a.y}}",
        right="a: {step: first, inputs: {x: text}}\nb: {step: second, inputs: {x: a.y}}",
    ),
    Rule(
        UNUSED_INPUT,
        "input that no node reads",
        "Triton refuses an ensemble with an input that nothing uses.",
        wrong="inputs: {text: string, language: string}    # no node reads language",
        right="inputs: {text: string}",
    ),
    Rule(
        UNUSED_NODE,
        "node that reaches no output",
        "Its work would be thrown away, and Triton refuses a step whose outputs nothing reads.",
        wrong="outputs: {label: verdict.label}    # and nothing reads `words`",
        right="outputs: {label: verdict.label, hits: words.hits}",
    ),
    Rule(
        OUTPUT_IS_INPUT,
        "output that no node made",
        "Triton has no way to hand an input through: an output comes from a node.",
        wrong="outputs: {text: text}",
        right="outputs: {text_out: clean.text}",
    ),
    Rule(
        MAX_BATCH,
        "batch larger than a callee takes",
        "A pipeline passes its whole batch on, so it takes at most the least of what its batched "
        "models and steps take.",
        wrong="max_batch: 64    # and nsfw takes 32",
        right="max_batch: 32",
    ),
    Rule(
        FORM,
        "form that cannot keep the declaration",
        "An ensemble is a static graph, and a fused model runs Python steps alone: policies, "
        "conditions, fan-out, list tensors and models without a batch axis in a batched pipeline "
        "need the bls form. Without `form` the cheapest one that keeps everything is taken.",
        wrong="form: ensemble    # and a node has `timeout_ms`",
        right="form: bls",
    ),
    Rule(
        EXPRESSION,
        "condition that cannot be read",
        "A condition has comparisons, and, or, not, numbers, strings and references with integer "
        'subscripts: "nsfw.probs[1] < 0.8". At most 500 characters; the batch axis is left out. '
        "Both sides of a comparison are numbers, or texts, or true and false.",
        wrong='when: "max(nsfw.probs) < 0.8"',
        right='when: "nsfw.probs[1] < 0.8"',
    ),
    Rule(
        POLICY,
        "policy that does not fit its node",
        "`on_error` gives a value for each output of the node that is read: a scalar fills the "
        "shape, a list has the shape of one row; a list tensor has a list of items. `after` and "
        "`quorum` name nodes; those of a quorum feed the node, through inputs that may be absent.",
        wrong="on_error: {prob: 0.0}    # the output is called probs",
        right="on_error: {probs: 0.0}",
    ),
    Rule(
        STEP_FILE,
        "steps.py that cannot be read",
        "Steps are read as a syntax tree and never imported; the file must be Python 3.10.",
        wrong='def judge(score)\n    return {"label": score}',
        right='def judge(score):\n    return {"label": score}',
    ),
    Rule(
        STEP_MISSING,
        "step function that does not exist",
        "`step: NAME` is a function at the top of ensembles/<pipeline>/steps.py, or one that it "
        "imports from a module beside it or from ensembles/common.",
        wrong="verdict: {step: juge, inputs: {score: tox.score}, outputs: {label: string}}",
        right="verdict: {step: judge, inputs: {score: tox.score}, outputs: {label: string}}",
    ),
    Rule(
        STEP_PARAMETERS,
        "parameters are not the declared inputs",
        "A step is called with its inputs by name: each declared input is a parameter, each "
        "parameter without default is a declared input.",
        wrong="def judge(tox): ...    # called with inputs: {score: tox.score}",
        right="def judge(score): ...",
    ),
    Rule(
        STEP_RETURNS,
        "returned keys are not the declared outputs",
        "A step returns a dict with one array for each declared output.",
        wrong='return {"lable": label}    # declared: outputs: {label: string}',
        right='return {"label": label}',
    ),
    Rule(
        STEP_OUTPUTS,
        "outputs that a step does not declare",
        "A step of steps.py declares its outputs with their types; a ready-made one has its own.",
        wrong="verdict: {step: judge, inputs: {score: tox.score}}",
        right="verdict: {step: judge, inputs: {score: tox.score}, outputs: {label: string}}",
    ),
    Rule(
        READY_UNKNOWN,
        "ready-made step that does not exist",
        "`step: {use: NAME}` takes image, tokenize, labels, threshold or join.",
        wrong="pixels: {step: {use: picture, size: 224}, inputs: {image: image}}",
        right="pixels: {step: {use: image, size: 224}, inputs: {image: image}}",
    ),
    Rule(
        READY_OPTIONS,
        "options of a ready-made step do not fit",
        "The options contradict each other, or what feeds the step is not what it works on.",
        wrong="best: {step: {use: labels}, inputs: {scores: head.scores}}",
        right="best: {step: {use: labels, labels: [no, yes]}, inputs: {scores: head.scores}}",
    ),
    Rule(
        ASSET,
        "asset that does not exist",
        "Files that steps open lie in ensembles/<pipeline>/assets/, or are named in assets.yaml "
        'as a file of a model package: {tokenizer.json: "package:NAME/path"}.',
        wrong="tokens: {step: {use: tokenize, tokenizer: tokeniser.json}, inputs: {text: text}}",
        right="tokens: {step: {use: tokenize, tokenizer: tokenizer.json}, inputs: {text: text}}",
    ),
    Rule(
        PIPELINE_CYCLE,
        "pipelines call each other in a circle",
        "A pipeline becomes a model; a model that waits for itself never answers.",
        wrong=(
            "# ensembles/a: b: {model: b, inputs: {x: x}}\n"
            "# ensembles/b: a: {model: a, inputs: {x: x}}"
        ),
        right="# ensembles/a: b: {model: b, inputs: {x: x}}\n# ensembles/b calls no pipeline",
    ),
    Rule(
        STEP_SETTING,
        "setting that a step cannot have",
        "A step runs in Triton's Python backend with a batch axis; `batch: false` is for a "
        "function that takes one row.",
        wrong="scan: {step: scan, batch: false, instances: 0}",
        right="scan: {step: scan, batch: false, instances: 2}",
    ),
    Rule(
        FUSE,
        "nodes that cannot become one",
        "`fuse` names two or more nodes, or is `auto`. Nodes become one model when they are ONNX "
        "models, or Python steps, that feed each other, are served alike and have no policy "
        "between them.",
        wrong="fuse: [encode, words]    # words has a timeout_ms of its own",
        right="fuse: [encode, head]",
    ),
    Rule(
        SWITCH,
        "switch that cannot choose",
        "A switch maps nodes of the pipeline to conditions, `else` last: each row goes to the "
        "first whose condition holds. All of them give the same outputs, which are those of the "
        "switch, and none has a `when` of its own or belongs to two switches.",
        wrong='pick: {switch: {short: "count.words < 9", long: "count.words >= 9"}}',
        right='pick: {switch: {short: "count.words < 9", long: else}}',
    ),
    Rule(
        LIST,
        "list tensor where none can be",
        "A list tensor has a varying number of items per row. Steps make it, `foreach` runs a "
        "node for each item, and its outputs are list tensors again; a step takes a whole one. "
        "Models, and the inputs and outputs of a pipeline, have a fixed number of axes.",
        wrong="nsfw: {model: nsfw, inputs: {pixels: boxes.crops}}",
        right="nsfw: {model: nsfw, foreach: boxes.crops, inputs: {pixels: boxes.crops}}",
    ),
    Rule(
        ABSENT,
        "value that may be absent where one is needed",
        "A node is absent on rows where its condition is false, where what it needs is absent, "
        "and where it failed and is not required. Only a `x?` input of a step and an optional "
        "input of a model can do without; a switch brings branches together again.",
        wrong=(
            "nsfw: {model: nsfw, required: false, inputs: {pixels: pixels.pixels}}\n"
            "verdict: {step: judge, inputs: {nsfw: nsfw.probs}, outputs: {label: string}}"
        ),
        right=(
            "nsfw: {model: nsfw, required: false, inputs: {pixels: pixels.pixels}}\n"
            'verdict: {step: judge, inputs: {"nsfw?": nsfw.probs}, outputs: {label: string}}'
        ),
    ),
    Rule(
        IDLE_POLICY,
        "policy that has no effect",
        "A hedge sends a second call when the first is late: that helps when the model has a "
        "second instance, and before the time of the node is over. A node never gets more time "
        "than the pipeline has.",
        Severity.WARNING,
        wrong="{model: nsfw, timeout_ms: 100, hedge_ms: 200}",
        right="{model: nsfw, timeout_ms: 300, hedge_ms: 100}",
    ),
    Rule(
        ASYNC,
        "one request at a time in each instance",
        "Before 24.06 Triton has no response sender in default mode: the runner of the bls form "
        "answers a request before it takes the next. More instances help.",
        Severity.WARNING,
        wrong='defaults: {release: "24.01"}    # mmctl.yaml, and the pipeline has the bls form',
        right='defaults: {release: "24.10"}',
    ),
    Rule(
        UNCALLABLE,
        "model that says no outputs",
        "A pipeline is checked before a server sees it, so its models say their tensors. Language "
        "models of the engines vLLM and TensorRT-LLM answer in a stream, which ends outside of "
        "pipelines; the config.pbtxt of a model of your own needs `input` and `output`.",
        wrong="answer: {model: llama, inputs: {text_input: text}}    # served by vLLM",
        right="# call the language model from the client, with the answer of the pipeline",
    ),
    Rule(
        NOT_EXPORTED,
        "model that was never exported",
        "The tensors of a model are known from its model.lock, which the export writes. Until then "
        "pipelines that call it are not checked.",
        Severity.WARNING,
        wrong="# model_repository/nsfw/ has model.yaml and no model.lock",
        right="# mmctl export nsfw",
    ),
)

_SEVERITY = {rule.code: rule.severity for rule in WIRING_RULES}


class Report:
    """Findings about one pipeline, each at its place in the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def add(self, code: str, message: str, *location: Key, hint: str | None = None) -> None:
        """A finding about the value at `location`."""
        self.add_at(self.document.at(*location), code, message, hint)

    def add_key(self, code: str, message: str, *location: Key, hint: str | None = None) -> None:
        """A finding about the key at the end of `location`."""
        self.add_at(self.document.at_key(*location), code, message, hint)

    def add_at(self, position: Position, code: str, message: str, hint: str | None = None) -> None:
        self.findings.append(Finding.at(position, code, message, hint, _SEVERITY[code]))
