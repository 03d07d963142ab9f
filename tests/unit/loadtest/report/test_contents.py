"""The page of a load test and a trace: what stands on it, and that its numbers are the JSON's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser
from results import EVIL, bench_result, latencies, trace_result

from mmctl.loadtest.report.contents import render_report


class Reader(HTMLParser):
    """The numbers of a page by JSON pointer, its texts, its document, and what it refers to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, Any, str]] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.document: dict[str, Any] = {}
        self._open: list[tuple[str, Mapping[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._open.append((tag, named))
        self.ids += [value for name in ("id",) if (value := named.get(name))]
        self.refers += [value for name in ("href", "src") if (value := named.get(name))]

    def handle_data(self, data: str) -> None:
        tag, named = self._open[-1] if self._open else ("", {})
        if tag == "data":
            self.numbers.append((str(named["data-json"]), json.loads(str(named["value"])), data))
        elif tag == "script" and named.get("id") == "results":
            self.document = json.loads(data)
        elif tag not in ("style", "script"):
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass


def found(document: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


def pages() -> Iterator[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    yield "both", bench_result(), trace_result()
    yield "load", bench_result(), None
    yield "trace", None, trace_result()
    nothing = bench_result(
        levels=[], slices=[], nodes=[], errors={}, partial="nobody answered", cpu={}, completed=0,
        latency_ms=dict.fromkeys(latencies(1)), send_lag_ms=dict.fromkeys(latencies(1)),
    )  # fmt: skip
    yield "nothing", nothing, None


@pytest.mark.parametrize(("bench", "trace"), [page[1:] for page in pages()])
def test_the_numbers_are_those_of_the_json(
    bench: dict[str, Any] | None, trace: dict[str, Any] | None
) -> None:
    page = Reader(render_report(bench, trace))
    assert page.document == {
        name: one for name, one in (("bench", bench), ("trace", trace)) if one is not None
    }
    for pointer, value, shown in page.numbers:
        assert value == found(page.document, pointer), pointer
        read = float(shown.rstrip("%").replace(",", "")) / (100 if shown.endswith("%") else 1)
        assert read == pytest.approx(value, abs=0.051), pointer
    assert len(page.ids) == len(set(page.ids))


def test_all_that_was_measured_is_there() -> None:
    page = Reader(render_report(bench_result(), trace_result()))
    pointers = {pointer for pointer, _, _ in page.numbers}
    for n in range(4):
        assert {f"/bench/levels/{n}/{key}" for key in ("throughput", "latency_ms/p99")} <= pointers
    assert {f"/bench/slices/{n}/offered" for n in range(6)} <= pointers
    assert "/bench/nodes/1/batches/3" in pointers
    assert "/bench/errors/deadline" in pointers
    assert {f"/trace/nodes/{n}/share" for n in range(5)} <= pointers
    assert "/trace/waterfalls/p99/calls/0/calls/1/calls/0/compute_ms/1" in pointers
    assert "/trace/without_them_saves_ms/p95" in pointers


def test_the_knee_is_marked() -> None:
    html = render_report(bench_result(), None)
    assert ">knee</text>" in html
    page = Reader(html)
    assert ("/bench/levels/2/callers", 4, "4") in page.numbers
    assert "answers a second at the knee" in page.texts


def test_names_and_errors_of_others_stay_text() -> None:
    html = render_report(bench_result(), trace_result())
    assert "document.title" in html
    assert "<script>document" not in html
    assert EVIL in Reader(html).texts


def test_it_refers_to_nothing_outside() -> None:
    page = Reader(render_report(bench_result(), trace_result()))
    outside = [one for one in page.refers if not one.startswith(("#", "data:"))]
    assert not outside
    assert {one[1:] for one in page.refers if one.startswith("#")} <= set(page.ids)


def test_two_runs_of_one_result_give_one_page() -> None:
    assert render_report(bench_result(), None) == render_report(bench_result(), None)


def test_what_was_cut_short_says_so() -> None:
    page = Reader(render_report(bench_result(partial="the server is gone"), None))
    assert "cut short: the server is gone" in page.texts


def test_every_plot_has_its_numbers_and_a_caption() -> None:
    html = render_report(bench_result(), None)
    assert html.count('<svg class="plot" role="img" aria-label="') == 3
    assert html.count("<figcaption>") == html.count("<summary>Its numbers</summary>") == 3


def test_edges_that_nobody_knows_are_not_drawn() -> None:
    html = render_report(None, trace_result(edges={}))
    assert "What waits for what is not known here." in html
    assert 'class="head"' not in html


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


def test_in_a_browser_it_is_whole_and_fits_a_phone_in_light_and_dark(browser: Browser) -> None:
    html = render_report(bench_result(), trace_result()).replace("<details>", "<details open>")
    light = browser.visit(html, width=390)
    dark = browser.visit(html, width=1280, dark=True)
    for visit in (light, dark):
        assert not visit.said
        assert not visit.requested
        assert visit.probe["page"] <= visit.probe["window"]
        assert visit.probe["black"] == 0
        assert visit.probe["focusable"] > 10
        seen = Reader(visit.dom)
        assert seen.numbers == Reader(html).numbers
        assert seen.document == {"bench": bench_result(), "trace": trace_result()}
    assert light.probe["window"] <= 390
    assert (light.probe["ink"], light.probe["paper"]) != (dark.probe["ink"], dark.probe["paper"])
    assert dark.probe["paper"] == "rgb(20, 23, 26)"


def test_the_browser_would_tell_of_a_script_that_fails_and_of_a_request(
    browser: Browser, tmp_path: Path
) -> None:
    bad = '<script>nobody()</script><img src="http://127.0.0.1:9/x.png"></body>'
    visit = browser.visit(render_report(bench_result(), None).replace("</body>", bad), width=390)
    assert len(visit.said) == 2
    screenshot = tmp_path / "page.png"
    browser.screenshot(render_report(bench_result(), None), screenshot, width=390, height=900,
                       dark=True)  # fmt: skip
    assert screenshot.read_bytes().startswith(b"\x89PNG")
