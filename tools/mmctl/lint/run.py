"""Rules about what only a run can show: `mmctl check --run` finds them. Rows alone."""

from __future__ import annotations

from mmctl.diagnostics import Rule, Severity

OUTPUT = "P001"
ANSWER = "P002"
LOAD = "P003"
DEATH = "P004"
SILENCE = "P005"
NOT_RUN = "P006"
CHANCE = "P007"
WARM_UP = "W003"

BATCH = "M006"
MATES = "M009"
JOIN = "E015"
WILDCARD = "E017"
SUBSET = "E019"
"""Codes of rules that `check` has also without a run."""

RUN_RULES: tuple[Rule, ...] = (
    Rule(
        OUTPUT,
        "output other than declared",
        "Triton does not compare what a Python model returns with its config: another shape, type "
        "or number of rows goes out as it is, and an output that is left out is simply not there. "
        "Return every declared output, with the batch as its first axis where max_batch_size is "
        "above 0.",
        wrong='pb_utils.Tensor("y", x.mean(axis=0))  # config: max_batch_size 4, dims [ 1 ]',
        right='pb_utils.Tensor("y", x.mean(axis=1, keepdims=True))',
    ),
    Rule(
        ANSWER,
        "request that fails",
        "A request that fits the config is refused. With values of the user's own (a sample, the "
        "file of a warm-up) that is an error; with generated ones the values may be at fault, so "
        "it is a remark: give better ones with `--input MODEL=FILE.json`.",
        wrong="ids = request.inputs()[0]\nrow = table[ids]    # 900 for a table of 100 rows",
        right="mmctl check --run models --input tagger=sample.json",
    ),
    Rule(
        LOAD,
        "model that does not load",
        "Triton could not load the model. Its clients are only told `failed to load`; the reason "
        "comes from the server's log.",
        wrong='self.words = open("words.txt")    # relative to what?',
        right='self.words = open(os.path.join(os.path.dirname(__file__), "words.txt"))',
    ),
    Rule(
        DEATH,
        "model that kills its server",
        "The server, or the process that a Python model runs in, died while the model was loaded "
        "or asked. In production that takes every other model with it.",
        wrong="os._exit(1)    # in a Python model, or a crash of a library",
        right='raise pb_utils.TritonModelException("...")',
    ),
    Rule(
        SILENCE,
        "model that does not answer",
        "No answer came in time. A Python model must return one response for each request, and a "
        "model that calls itself, or is called by one that it calls, waits for ever.",
        wrong="def execute(self, requests):\n    return [None for request in requests]",
        right="def execute(self, requests):\n    return [self.answer(request) for ...]",
    ),
    Rule(
        NOT_RUN,
        "not run, or not as configured",
        "What the embedded server cannot do was left out or done otherwise: other backends, GPUs, "
        "very large batches. The message says what.",
        Severity.INFO,
        wrong='backend: "tensorrt"    # not on the embedded server',
        right="# run it where the backend is, or ignore P006",
    ),
    Rule(
        CHANCE,
        "answers that differ by themselves",
        "The same request gave different answers, so that nothing can be said about what the other "
        "rows of a batch change.",
        Severity.INFO,
        wrong="y = x + numpy.random.rand()",
        right="y = x + numpy.random.default_rng(0).random()",
    ),
    Rule(
        WARM_UP,
        "warm-up that fails",
        "A model whose warm-up fails is not served, and on Triton 24.10 the failure often kills "
        "the whole server. The warm-up must hold values that the model takes.",
        wrong='inputs { key: "ids" value: { ... random_data: true } }    # of a table of 100 rows',
        right='inputs { key: "ids" value: { ... zero_data: true } }',
    ),
)
