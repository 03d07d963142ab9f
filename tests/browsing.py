"""Chromium without a window, for tests: what a page becomes in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import program

PROGRAM = "chromium-headless-shell"
FONTS = """\
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""
PROBE = """\
<script>
const root = document.documentElement;
root.dataset.probe = JSON.stringify({
  window: root.clientWidth, page: root.scrollWidth,
  ink: getComputedStyle(document.body).color,
  paper: getComputedStyle(document.body).backgroundColor,
  focusable: document.querySelectorAll("a[href], summary, [tabindex='0']").length,
  black: [...document.querySelectorAll("svg.plot text")]
    .filter(text => getComputedStyle(text).fill == "rgb(0, 0, 0)").length,
});
</script>
</body>"""


@dataclass(frozen=True, slots=True)
class Visit:
    """`said` is the console: errors of scripts, and what the page was not allowed to fetch."""

    dom: str
    said: list[str]
    requested: list[str]
    probe: dict[str, Any]


class Browser:
    """Skips the test where there is no Chromium. Fonts are matplotlib's own, so one machine
    shows what another does.
    """

    def __init__(self, folder: Path) -> None:
        self._program, self._folder = program(PROGRAM), folder
        from matplotlib import get_data_path

        fonts = Path(get_data_path()) / "fonts" / "ttf"
        (folder / "fonts.conf").write_text(FONTS.format(fonts=fonts, cache=folder / "fonts"))

    def visit(self, html: str, *, width: int, dark: bool = False) -> Visit:
        """The page as it is, with a script of ours at its end that measures it. That one is let
        through by the page's policy; nothing else is.
        """
        html = html.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
        page, log = self._folder / "page.html", self._folder / "requests.json"
        page.write_text(html.replace("</body>", PROBE))
        done = self._run(page, width, "--dump-dom", f"--log-net-log={log}", dark=dark)
        probe = re.search(r'data-probe="([^"]*)"', done.stdout)
        assert probe is not None, done.stderr
        return Visit(
            dom=done.stdout,
            said=[line for line in done.stderr.splitlines() if "CONSOLE" in line],
            requested=re.findall(r'"url":"((?:https?|wss?):[^"]*)"', log.read_text()),
            probe=json.loads(probe[1].replace("&quot;", '"')),
        )

    def screenshot(self, html: str, path: Path, *, width: int, height: int, dark: bool) -> None:
        page = self._folder / "page.html"
        page.write_text(html)
        self._run(
            page, width, "--hide-scrollbars", f"--screenshot={path}", dark=dark, height=height
        )

    def _run(
        self, page: Path, width: int, *flags: str, dark: bool, height: int = 900
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                self._program, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                f"--user-data-dir={self._folder / 'profile'}", f"--window-size={width},{height}",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                *flags, page.as_uri(),
            ],
            env={**os.environ, "FONTCONFIG_FILE": str(self._folder / "fonts.conf")},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
