"""What the exact level of the cache costs, and what its eviction hits.

    scripts/bench_cache                    everything
    scripts/bench_cache speed overhead     some of it: speed, overhead, eviction, memory
    scripts/bench_cache --gate             exit 1 when a number is beyond its goal
    scripts/bench_cache --json > now.json  to be compared later

speed     a hit of 1 KB from request to answer (key, get, answer), beside the least that any cache
          does for it (the bytes, one SHA-256, one dict, one answer); the key of a 602 KB image,
          beside SHA-256 alone.
overhead  a model that takes 10 ms and requests that are all different, with and without the cache.
eviction  five traces of 200,000 requests for 1,000 places: this cache, LRU, and theine where that
          is installed (`pip install theine`).
memory    the memory that a full store takes of its limit while nothing hits.

Both sides of a ratio take turns. Intervals are of 95 % or more. In one process, one thread.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from bench_measure import Estimate, circumstances, estimate, in_process, interleaved
from cache_traces import TRACES, duel_hits, key_of, lru_hits

from mmctl.cache.cache import Cache
from mmctl.cache.effects import Pause
from mmctl.cache.envelope import kept
from mmctl.cache.keys import Identity, exact_key
from mmctl.cache.local import LocalStore
from mmctl.effects import Steps, by_type, drive
from mmctl.inference import InferRequest, InferResponse

say = partial(print, file=sys.stderr, flush=True)

MODEL = Identity("m", "1", "d" * 64)
ROUNDS = 31
PLACES = 1000
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """`value` in `unit`, which shall be at most `goal`, or at least where `least` says so."""

    bench: str
    what: str
    value: float
    unit: str
    goal: float | None = None
    least: bool = False
    interval: tuple[float, float] | None = None

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        return self.value >= self.goal if self.least else self.value <= self.goal


def row_of(bench: str, what: str, found: Estimate, unit: str, goal: float | None = None) -> Row:
    return Row(bench, what, found.median, unit, goal, interval=(found.low, found.high))


def speed() -> Iterator[Row]:
    values = np.random.default_rng(0).random((2000, 1, 256), dtype="f4")
    requests = [InferRequest("m", {"x": value}) for value in values]
    store, plain = LocalStore(64 * MIB), {}
    for request in requests:
        entry = kept(InferResponse(request.inputs, "m", "1"), created=time.time(), ttl_s=3600.0)
        store.put(exact_key("t", MODEL, request, "1"), entry)
        plain[hashlib.sha256(request.inputs["x"].tobytes()).digest()] = entry.outputs

    def hit(request: InferRequest) -> object:
        entry = store.get(exact_key("t", MODEL, request, "1"))
        return entry.response() if entry else None

    def least(request: InferRequest) -> object:
        key = hashlib.sha256(request.inputs["x"].tobytes()).digest()
        return InferResponse(dict(plain[key]), "m", "1")

    yield from compared("speed", "hit of 1 KB", hit, least, requests, goal_us=8.0, goal_ratio=4.0)

    image = np.random.default_rng(1).random((1, 3, 224, 224), dtype="f4")
    images = [InferRequest("m", {"x": image})] * 20
    yield from compared(
        "speed",
        "key of 602 KB",
        lambda request: exact_key("t", MODEL, request, "1"),
        lambda request: hashlib.sha256(request.inputs["x"].reshape(-1).view("u1").data).digest(),
        images,
        goal_us=450.0,
        goal_ratio=None,
    )


def compared(
    bench: str,
    what: str,
    ours: Callable[[InferRequest], object],
    baseline: Callable[[InferRequest], object],
    requests: list[InferRequest],
    *,
    goal_us: float,
    goal_ratio: float | None,
) -> Iterator[Row]:
    def us(call: Callable[[InferRequest], object]) -> float:
        began = time.perf_counter()
        for request in requests:
            call(request)
        return (time.perf_counter() - began) / len(requests) * 1e6

    us(ours), us(baseline)
    pairs = list(interleaved(ROUNDS, partial(us, ours), partial(us, baseline)))
    yield row_of(bench, what, estimate([mine for mine, _ in pairs]), "us", goal_us)
    yield row_of(bench, f"{what}, the least", estimate([other for _, other in pairs]), "us")
    ratios = estimate([mine / other for mine, other in pairs])
    yield row_of(bench, f"{what}, to the least", ratios, "times", goal_ratio)


def overhead() -> Iterator[Row]:
    """Requests with and without the cache take turns, one by one: the machine is as busy for both,
    and a processor that has just waited for a model is as cold.
    """
    cache = Cache(tenant="t")
    perform = by_type(cache.performers)
    numbers = iter(range(10**9))

    def compute(request: InferRequest) -> Steps[InferResponse]:
        yield Pause(0.01)
        return InferResponse({"y": request.inputs["x"]}, "m", "1")

    def took(call: Callable[[InferRequest], Steps[object]]) -> float:
        request = InferRequest("m", {"x": np.full((1, 256), next(numbers), "f4")})
        began = time.perf_counter()
        drive(call(request), perform)
        return time.perf_counter() - began

    with_it = partial(took, lambda request: cache.steps(MODEL, request, compute))
    pairs = list(interleaved(ROUNDS * 20, with_it, partial(took, compute)))
    added = estimate([100 * (mine / bare - 1) for mine, bare in pairs])
    yield row_of("overhead", "all misses, 10 ms model", added, "% more", 3.0)


def eviction() -> Iterator[Row]:
    for name, make in TRACES.items():
        trace = make(200_000)
        least_recent = share(lru_hits(trace, PLACES), trace)
        ours = share(duel_hits([key_of(item) for item in trace], PLACES)[0], trace)
        tiny = theine_hits(trace)
        goals = [least_recent - 3.0]
        if tiny is not None and name != "bursts":
            goals.append(share(tiny, trace) - 2.0)
        yield Row("eviction", name, ours, "% hits", max(goals), least=True)
        yield Row("eviction", f"{name}, LRU", least_recent, "% hits")
        if tiny is not None:
            yield Row("eviction", f"{name}, theine", share(tiny, trace), "% hits")


def share(hits: int, trace: list[int]) -> float:
    return 100 * hits / len(trace)


def theine_hits(trace: list[int]) -> int | None:
    try:
        from theine import Cache as Theine
    except ImportError:
        return None
    cache, hits = Theine(PLACES), 0
    for item in trace:
        key = f"k{item}"
        if cache.get(key)[1]:
            hits += 1
        else:
            cache.set(key, 1)
    return hits


def memory() -> Iterator[Row]:
    limit = 8 * MIB
    for what, size in (("4 B", 1), ("1 KB", 256), ("600 KB", 150_000)):
        room = limit if size < 1000 else 8 * limit
        store = LocalStore(room)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(4 * room // (4 * size + 1000)):
            key = key_of(number)
            store.get(key)
            response = InferResponse({"y": np.full(size, number, "f4")}, "m", "1")
            store.put(key, kept(response, created=time.time(), ttl_s=3600.0))
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        yield Row("memory", f"answers of {what}", used / room, "of the limit", 1.1)


BENCHES = {"speed": speed, "overhead": overhead, "eviction": eviction, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=", ".join(BENCHES))
    parser.add_argument("--gate", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    if unknown := set(options.benches) - BENCHES.keys():
        parser.error(f"no bench {', '.join(sorted(unknown))}: take {', '.join(BENCHES)}")
    about = circumstances(in_process("numpy"))
    rows = []
    for name in options.benches or BENCHES:
        for row in BENCHES[name]():
            rows.append(row)
            say(line(row))
    if options.json:
        print(json.dumps({"schema": 1, **about, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print("\n".join([*(f"{key}: {value}" for key, value in about.items()), *map(line, rows)]))
    return int(options.gate and not all(row.met for row in rows))


def line(row: Row) -> str:
    interval = "" if row.interval is None else f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]"
    goal = ""
    if row.goal is not None:
        bound = "at least" if row.least else "at most"
        goal = f"  {bound} {row.goal:.4g}: {'met' if row.met else 'MISSED'}"
    return f"{row.bench:9} {row.what:32} {row.value:8.2f}{interval} {row.unit}{goal}"


if __name__ == "__main__":
    sys.exit(main())
