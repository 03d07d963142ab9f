"""What the semantic level of the cache answers of a labelled stream, and how much of it wrongly.

    scripts/eval_semantic                              the default streams, 4 orders each
    scripts/eval_semantic --stream FILE.jsonl          another: {"text", "label"} a line
    scripts/eval_semantic --only banking --orders 40   in how many orders the promise was broken
    scripts/eval_semantic --life 2000                  entries live for 2,000 requests
    scripts/eval_semantic --traps                      pairs of texts, and of conversations, instead
    scripts/eval_semantic --json                       {stream: {policy: {hits, wrong_per_hit, ..}}}

Texts come one after another, each once, as to a model that answers with the label. What the level
gives is a hit, and wrong when it is another label; all else runs the model, which the level learns
from and keeps. `oos` is a label that equals nothing. Lines beside the policies: `oracle` hits
whenever an entry with the same label is kept, `exact` where the same text is (texts come as often
as they do in the file), `normalised` where it is so but for its spelling.

Default streams: CLINC150 (without and with its out-of-scope texts) and BANKING77, 12,000 texts of
each order; the samples of NLU-Evaluation-Data and SNIPS.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.cache.cache import Cache
from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.keys import Identity, normalised
from mmctl.cache.meaning import Embedded
from mmctl.cache.semantic.bounds import interval
from mmctl.cache.semantic.embedders import OnnxEmbedder
from mmctl.cache.semantic.guard import agree, facts_of
from mmctl.cache.semantic.level import Kept, Level
from mmctl.cache.semantic.levels import Levels
from mmctl.cache.semantic.ring import Ring
from mmctl.cache.settings import CacheSettings, ModelCache, Semantic
from mmctl.effects import Steps, by_type, drive
from mmctl.errors import InputError, MmctlError
from mmctl.inference import InferRequest, InferResponse

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MODEL = ROOT / "model_repository" / "minilm" / "1" / "model.onnx"
TOKENIZER = ROOT / "model_repository" / "embed__tokens" / "1" / "assets" / "tokenizer.json"
VECTORS = ROOT / ".mmctl" / "embeddings"

ORDERS = 4
LONGEST = 12_000
BATCH = 32
FOREVER = 1e12
OUT_OF_SCOPE = "oos"
REPLY = Identity("reply", "1", "content")

POLICIES: dict[str, Any] = {
    **{f"static {cosine:.2f}": {"static": cosine} for cosine in (0.85, 0.90, 0.95)},
    **{f"verified {delta}": {"verified": {"max_error": delta}} for delta in (0.01, 0.02, 0.05)},
}

Rows = list[tuple[str, str]]
Told = dict[str, "Counts"]


@dataclass
class Counts:
    """Of any number of orders together. `shares` are the wrong hits of each order, per hit."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0
    probes: int = 0
    shares: list[float] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.requests += other.requests
        self.hits += other.hits
        self.wrong += other.wrong
        self.probes += other.probes
        self.shares.append(other.wrong / max(other.hits, 1))

    def told(self, promise: float | None) -> dict[str, Any]:
        """`promise` is the largest share of wrong hits that the policy allows, if it says one."""
        broken = None if promise is None else sum(share > promise for share in self.shares)
        return {
            "hits": self.hits / max(self.requests, 1),
            "wrong_per_hit": self.wrong / max(self.hits, 1),
            "interval": list(interval(self.wrong, self.hits)),
            "wrong_per_request": self.wrong / max(self.requests, 1),
            "worst_order": max(self.shares),
            "orders": len(self.shares),
            "orders_that_broke_the_promise": broken,
            "probes": self.probes / max(self.requests, 1),
            "counts": {"requests": self.requests, "hits": self.hits, "wrong": self.wrong},
        }


def default_streams() -> dict[str, Rows]:
    """Raises InputError where the data is not there."""
    clinc, banking = DATA / "intent" / "clinc150_full.json", DATA / "intent"
    if not clinc.is_file():
        raise InputError(f"`{DATA}` is not there", hint="pass `--stream FILE.jsonl`")
    parts = json.loads(clinc.read_text()).values()
    everything = [(text, label) for rows in parts for text, label in rows]
    streams = {
        "clinc150": [row for row in everything if row[1] != OUT_OF_SCOPE],
        "clinc150 with 5 % out of scope": everything,
        "banking77": [
            (row["text"], row["category"])
            for name in ("train", "test")
            for row in csv.DictReader((banking / f"banking77_{name}.csv").open(newline=""))
        ],
    }
    for name in ("nlu-eval", "snips"):
        streams[f"{name} sample"] = read_stream(DATA / "caching" / f"{name}_sample.jsonl")
    return streams


def read_stream(path: Path) -> Rows:
    """Raises InputError for a line that is not a text and a label."""
    rows: Rows = []
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"`{path}`: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append((str(row["text"]), str(row["label"])))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}:{number}: this is not a text and a label",
                hint='a line is {"text": "...", "label": "..."}',
            ) from error
    if not rows:
        raise InputError(f"`{path}` has no lines")
    return rows


def embedded(texts: Sequence[str]) -> dict[str, Vector]:
    """Kept on disk by what embeds and what is embedded."""
    embedder = OnnxEmbedder(MODEL, TOKENIZER)
    unique = sorted(set(texts), key=lambda text: (len(text), text))
    listed = hashlib.sha256(json.dumps([embedder.digest, unique]).encode()).hexdigest()
    path = VECTORS / f"{listed[:32]}.npy"
    if path.is_file():
        vectors = np.load(path, allow_pickle=False)
    else:
        parts = []
        for start in range(0, len(unique), BATCH):
            parts.append(embedder.vectors(unique[start : start + BATCH]))
            say(f"embedding {start + len(parts[-1])} of {len(unique)}", end="\r")
        say("")
        vectors = np.concatenate(parts)
        VECTORS.mkdir(parents=True, exist_ok=True)
        np.save(path, vectors, allow_pickle=False)
    return dict(zip(unique, vectors, strict=True))


def ordered(rows: Rows, seed: int) -> Rows:
    """Each text once, at most LONGEST, in the order of `seed`; what is out of scope alike to
    nothing.
    """
    unique = list(dict(rows).items())
    random.Random(seed).shuffle(unique)
    return [
        (text, f"{label} {place}" if label == OUT_OF_SCOPE else label)
        for place, (text, label) in enumerate(unique[:LONGEST])
    ]


def run_policy(
    rows: Rows, vectors: Mapping[str, Vector], policy: Any, seed: int, life: int | None
) -> Counts:
    """The real level, with a clock that ticks once a request."""
    now = 0.0
    draw = random.Random(seed)
    semantic = Semantic.model_validate(
        {"input": "text", "output": "label", "policy": policy, "ttl_s": life or FOREVER}
    )
    level = Level(semantic, Ring[Kept](clock=lambda: now), clock=lambda: now, chance=draw.random)
    counts = Counts(len(rows))
    for text, label in rows:
        now += 1
        vector = vectors[text]
        verdict = level.look(b"", text, vector)
        if verdict.accepted and not verdict.probe:
            assert verdict.entry is not None
            counts.hits += 1
            counts.wrong += verdict.entry.outputs["label"].item() != label
            continue
        counts.probes += verdict.probe
        entry = Entry({"label": np.array([label], object)}, "model", "1", now, FOREVER)
        level.learn(verdict, entry)
        level.store(b"", text, vector, entry)
    return counts


def run_known(
    rows: Rows, life: int | None, key: Callable[[str, str], str], entries: int = 10_000
) -> Counts:
    """Hits whatever has been kept under an equal key: a line to compare with."""
    kept: dict[str, tuple[int, str]] = {}
    order: deque[tuple[str, int]] = deque()
    counts = Counts(len(rows))
    for now, (text, label) in enumerate(rows):
        while order and (len(order) >= entries or (life and now - order[0][1] >= life)):
            old, at = order.popleft()
            if kept.get(old, (None, ""))[0] == at:
                del kept[old]
        found = kept.get(key(text, label))
        if found is not None:
            counts.hits += 1
            counts.wrong += found[1] != label
        else:
            kept[key(text, label)] = now, label
            order.append((key(text, label), now))
    return counts


def spelling(text: str) -> str:
    request = InferRequest("", {"text": np.array([text], object)})
    return str(normalised(request, "text").inputs["text"].item())


def run_order(rows: Rows, vectors: Mapping[str, Vector], seed: int, life: int | None) -> Told:
    """All lines of one order."""
    once, often = ordered(rows, seed), list(rows)
    random.Random(seed).shuffle(often)
    often = often[:LONGEST]
    return {
        "oracle": run_known(once, life, lambda _, label: label),
        "exact": run_known(often, life, lambda text, _: text),
        "normalised": run_known(often, life, lambda text, _: spelling(text)),
        **{name: run_policy(once, vectors, said, seed, life) for name, said in POLICIES.items()},
    }


def evaluate(
    streams: Mapping[str, Rows], orders: int, life: int | None
) -> dict[str, dict[str, Any]]:
    vectors = embedded([text for rows in streams.values() for text, _ in rows])
    promises = {
        name: policy["verified"]["max_error"]
        for name, policy in POLICIES.items()
        if "verified" in policy
    }
    told: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor() as pool:
        running = {
            (name, seed): pool.submit(
                run_order, rows, {text: vectors[text] for text, _ in rows}, seed, life
            )
            for name, rows in streams.items()
            for seed in range(orders)
        }
        for name in streams:
            found: dict[str, Counts] = {}
            for seed in range(orders):
                for policy, counts in running[name, seed].result().items():
                    found.setdefault(policy, Counts()).add(counts)
                say(f"{name}: order {seed + 1} of {orders}")
            told[name] = {
                policy: counts.told(promises.get(policy)) for policy, counts in found.items()
            }
    return told


def traps() -> dict[str, Any]:
    """Pairs that shall be hit and pairs that shall not, by cosine and guard; the second half of
    each kind is one that no rule was looked at with.
    """
    lines = (DATA / "caching" / "fow_pairs.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    vectors = embedded([pair[side] for pair in pairs for side in "ab"])
    alike = [float(vectors[pair["a"]] @ vectors[pair["b"]]) for pair in pairs]
    passes = [agree(facts_of(pair["a"]), facts_of(pair["b"])) for pair in pairs]
    halves = {"pairs": range(len(pairs)), "pairs, held out": range(1, len(pairs), 2)}
    told: dict[str, Any] = {}
    for half, places in halves.items():
        for cosine in (0.90, 0.95):
            for guard in (False, True):
                rows = {}
                for kind, same in (("must_hit", True), ("traps", False)):
                    of = [place for place in places if pairs[place]["same_answer"] == same]
                    hits = sum(alike[p] >= cosine and (passes[p] or not guard) for p in of)
                    rows[kind] = {"share": hits / len(of), "interval": interval(hits, len(of))}
                rule = f"static {cosine:.2f}" + (" with guard" if guard else "")
                told.setdefault(half, {})[rule] = rows
    return told


def conversations() -> dict[str, Any]:
    """Of one conversation after another, with the whole cache: the last message is the text, what
    was said before is another input. `last message alone` is the same without that input.
    """
    lines = (DATA / "caching" / "fow_conversations_short.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    vectors = embedded([pair[side][-1]["content"] for pair in pairs for side in "ab"])
    told: dict[str, Any] = {}
    for rule, whole in (("context and last message", True), ("last message alone", False)):
        rows = {}
        for kind, same in (("same_answer", True), ("traps", False)):
            of = [pair for pair in pairs if pair["same_answer"] == same]
            hits = sum(is_answered(pair["a"], pair["b"], vectors, whole=whole) for pair in of)
            rows[kind] = {"share": hits / len(of), "interval": interval(hits, len(of))}
        told[rule] = rows
    return {"conversations": told}


class Known:
    """Vectors that were made before."""

    def __init__(self, vectors: Mapping[str, Vector]) -> None:
        self._vectors = vectors

    def embed(self, text: str) -> Steps[Embedded]:
        return Embedded(self._vectors[text], "known")
        yield


Turns = Sequence[Mapping[str, str]]


def is_answered(one: Turns, other: Turns, vectors: Mapping[str, Vector], *, whole: bool) -> bool:
    """Whether a cache that has the answer to `one` gives it for `other`."""

    def request(turns: Turns) -> InferRequest:
        inputs = {"text": np.array([turns[-1]["content"]], object)}
        if whole:
            inputs["context"] = np.array([json.dumps(turn) for turn in turns[:-1]], object)
        return InferRequest("reply", inputs)

    def compute(_: InferRequest) -> Steps[InferResponse]:
        return InferResponse({"reply": np.array(["..."], object)}, "reply", "1")
        yield

    settings = CacheSettings(others=ModelCache(semantic=Semantic(input="text")))
    with Cache(tenant="t", settings=settings, meaning=Levels(embedder=Known(vectors))) as cache:
        levels = [
            drive(cache.steps(REPLY, request(turns), compute), by_type(cache.performers))[1].level
            for turns in (one, other)
        ]
    return levels[1] != "none"


def show(told: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    for stream, policies in told.items():
        print(f"\n{stream}")
        head = (
            f"{'hits %':>8}{'wrong/hit %':>13}{'95 % interval':>18}{'worst order':>13}{'broken':>9}"
        )
        print(f"  {'':22}{head}")
        for policy, row in policies.items():
            low, high = row["interval"]
            broken = row["orders_that_broke_the_promise"]
            broken = "" if broken is None else f"{broken} of {row['orders']}"
            between = f"{100 * low:.2f} - {100 * high:.2f}"
            print(
                f"  {policy:22}{100 * row['hits']:8.1f}{100 * row['wrong_per_hit']:13.2f}"
                f"{between:>18}{100 * row['worst_order']:13.2f}{broken:>9}"
            )


def show_traps(told: Mapping[str, Any]) -> None:
    for half, rules in told.items():
        print(f"\n{half}")
        for rule, kinds in rules.items():
            shown = ", ".join(
                f"{kind} {100 * row['share']:.1f} % "
                f"({100 * row['interval'][0]:.1f} - {100 * row['interval'][1]:.1f})"
                for kind, row in kinds.items()
            )
            print(f"  {rule:26}{shown}")


def say(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, flush=True, end=end)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", type=Path, action="append", metavar="FILE.jsonl")
    parser.add_argument("--only", metavar="TEXT", help="default streams with that in their name")
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--life", type=int, metavar="REQUESTS")
    parser.add_argument("--traps", action="store_true")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    try:
        if said.traps:
            told = {**traps(), **conversations()}
        else:
            streams = (
                {path.stem: read_stream(path) for path in said.stream}
                if said.stream
                else default_streams()
            )
            if said.only:
                streams = {name: rows for name, rows in streams.items() if said.only in name}
            if not streams:
                raise InputError(f"no stream has `{said.only}` in its name")
            told = evaluate(streams, said.orders, said.life)
    except MmctlError as error:
        say(f"error: {error}")
        return error.exit_code
    if said.json:
        print(json.dumps(told, indent=2))
    else:
        (show_traps if said.traps else show)(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
