"""The HTML report: one file, whole by itself, that says what the terminal says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from compare_rows import accuracy, comparison, measured

from mmctl.trials.compare import Objective
from mmctl.trials.compare.objective import recommend
from mmctl.trials.compare.report import render_html
from mmctl.trials.compare.text import advice_of, facts_of, lines_of

EMPTY = ("meta",)


class Balance(HTMLParser):
    """Collects the text; an end tag must close the tag that was opened last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


ROWS = [
    measured("fp32", 10),
    measured("fp16", 12),
    measured("int8", 4, size=25_000_000),
    measured("int4", 20, judged=accuracy(0.5, within=False)),
]


def page() -> str:
    made = comparison(ROWS, "INT8, static: <calibration> data is missing")
    found = recommend(made.rows, Objective.LATENCY)
    return render_html(
        made.model,
        [row.variant.title for row in made.rows],
        found.title,
        lines_of(made.rows),
        advice_of(found, Objective.LATENCY),
        made.notes,
        facts_of(made),
    )


def read(html: str) -> Balance:
    found = Balance()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


def test_nothing_is_fetched_from_anywhere_and_nothing_runs() -> None:
    html = page()
    assert not re.search(r"https?:|//\w|url\(|@import|<script|<link|<img", html)
    assert not {"src", "href"} & {name for name, _ in read(html).attributes}


def test_it_says_what_the_terminal_says() -> None:
    text = " ".join(read(page()).text)
    for said in ("net: which precision to serve", "INT8, dynamic", "10.0 ms", "0.40", "FP16"):
        assert said in text
    assert "recommended for latency: INT8, dynamic, because 0.40 of FP32's latency" in text
    assert "2 GFLOPs each request" in text


def test_words_from_elsewhere_are_text_and_not_tags() -> None:
    text = " ".join(read(page()).text)
    assert "INT8, static: <calibration> data is missing" in text
    assert "2 cores of <a CPU>" in text


def test_a_bar_is_as_long_as_its_ratio_and_the_mark_is_at_fp32() -> None:
    latency = next(line for line in page().splitlines() if "p50 at batch 1" in line)
    assert re.findall(r"width:([\d.]+)%", latency) == ["50.0", "60.0", "20.0", "100.0"]
    assert set(re.findall(r"left:([\d.]+)%", latency)) == {"50.0"}


def test_less_is_better_but_for_throughput() -> None:
    lines = page().splitlines()
    latency = next(line for line in lines if "p50 at batch 1" in line)
    throughput = next(line for line in lines if ">throughput<" in line)
    assert re.findall(r'"(same|better|worse)"', latency) == ["same", "worse", "better", "worse"]
    assert re.findall(r'"(same|better|worse)"', throughput) == ["same", "worse", "better", "worse"]


def test_the_recommended_column_is_marked() -> None:
    head = next(line for line in page().splitlines() if line.startswith("<thead>"))
    assert re.findall(r'class="pick">([^<]+)', head) == ["INT8, dynamic"]


def test_it_is_made_for_light_and_dark() -> None:
    html = page()
    assert "color-scheme: light dark" in html
    assert "@media (prefers-color-scheme: dark)" in html
