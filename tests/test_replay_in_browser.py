"""The HTML replay in a real browser, where one is named:

    TAPEDECK_BROWSER=chromium pytest tests/test_replay_in_browser.py

It is told what to do over the pipe of the DevTools protocol, so nothing but the browser is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.autograd.grouping import fold, group_by_layer
from app.autograd.pictures.diagram import draw
from app.autograd.pictures.replay_html import replay_html
from tests.autograd.test_replay_html import played
from tests.support.playback_nets import Residual

BROWSER = os.environ.get("TAPEDECK_BROWSER", "")
pytestmark = pytest.mark.skipif(not BROWSER, reason="TAPEDECK_BROWSER names no browser")
SIZES = [(1920, 1080), (1280, 800), (800, 600), (390, 844)]
SEEN = "[...document.querySelectorAll('#paper > svg')].findIndex(svg => getComputedStyle(svg).display !== 'none')"


class Browser:
    """One page of a headless Chromium; requests go to its descriptor 3, answers come from 4."""

    def __init__(self, folder: Path) -> None:
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()

        def descriptors() -> None:
            os.dup2(theirs_in, 103), os.dup2(theirs_out, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
        ]
        self._process = subprocess.Popen(
            [BROWSER, *options, f"--user-data-dir={folder}"],
            preexec_fn=descriptors,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in), os.close(theirs_out)
        self._out, self._in, self._count, self._session = (
            ours_out,
            os.fdopen(ours_in, "rb"),
            0,
            "",
        )
        self.complaints: list[dict[str, Any]] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        asked = {"id": self._count, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            told = b""
            while not told.endswith(b"\0"):
                letter = self._in.read(1)
                assert letter, "the browser has ended"
                told += letter
            answer = json.loads(told[:-1])
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in (
                "Log.entryAdded",
                "Runtime.exceptionThrown",
                "Runtime.consoleAPICalled",
            ):
                self.complaints.append(answer)

    def js(self, text: str) -> Any:
        answer = self.do(
            "Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page: Path, size: tuple[int, int], theme: str) -> None:
        width, height = size
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.do(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        self.do("Page.navigate", url=page.as_uri())
        while not self.js(
            "document.readyState === 'complete' && location.protocol === 'file:'"
        ):
            pass

    def press(self, what: str, times: int = 1) -> None:
        """Click with the mouse in the middle of an element."""
        box = f"document.querySelector({json.dumps(what)}).getBoundingClientRect()"
        x, y = self.js(f"[{box}.x + {box}.width / 2, {box}.y + {box}.height / 2]")
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.do(
                    "Input.dispatchMouseEvent",
                    type=kind,
                    x=x,
                    y=y,
                    button="left",
                    clickCount=count,
                )

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._out), self._in.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    tape, result = played(Residual())
    folded = fold(tape, group_by_layer(tape), frozenset())
    file = tmp_path_factory.mktemp("replay") / "replay.html"
    file.write_text(
        replay_html(
            tape, folded, draw(tape, folded), result, title="Residual: backward"
        ),
        "utf-8",
    )
    return file, len(tape.order)


def test_every_control_does_what_it_says(
    browser: Browser, page: tuple[Path, int]
) -> None:
    file, total = page
    browser.open(file, SIZES[1], "dark")
    counter = "counter.textContent"
    assert browser.js(counter) == f"0 of {total} steps have run" and browser.js(
        "start.disabled && back.disabled"
    )
    for _ in range(3):
        browser.press("#forth")
    browser.press("#back")
    assert browser.js(counter).startswith("2 of ")
    assert browser.js("document.querySelectorAll('#steps .ran').length") == 2
    browser.press("#end")
    assert browser.js(counter).startswith(f"{total} of ") and browser.js(
        "forth.disabled"
    )
    browser.press("#start")
    browser.key("ArrowRight")
    browser.press("#steps li:nth-child(4)")
    assert browser.js(counter).startswith("4 of ")
    assert browser.js(SEEN) == 0
    browser.press("#unfold")
    assert (
        browser.js(SEEN) == 1
        and browser.js("unfold.disabled")
        and browser.js(counter).startswith("4 of ")
    )
    browser.key("f")
    assert browser.js(SEEN) == 0
    browser.press("#paper .folded.box", times=2)
    assert browser.js(SEEN) == 1, "a box that is clicked twice is unfolded"
    width = browser.js(
        "document.querySelector('#paper > svg:not(.off)').getBoundingClientRect().width"
    )
    browser.press("#larger")
    assert (
        browser.js(
            "document.querySelector('#paper > svg:not(.off)').getBoundingClientRect().width"
        )
        > width
    )
    browser.js("speed.value = '1000'")
    browser.press("#start")
    browser.press("#play")
    while not browser.js(counter).startswith(f"{total} of "):
        pass
    assert (
        browser.js("document.getElementById('play').className") == ""
        and browser.complaints == []
    )


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_off_at_any_size(
    browser: Browser, page: tuple[Path, int], size: tuple[int, int], theme: str
) -> None:
    file, _ = page
    browser.open(file, size, theme)
    browser.press("#forth")
    assert browser.js(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    ) == list(size)
    outside = (
        "[...document.querySelectorAll('header *, footer *')].filter(one => "
        "getComputedStyle(one).display !== 'none' && one.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert browser.js(outside) == 0
    room = browser.js(
        "[paper.clientWidth, paper.clientHeight, details.clientHeight, steps.clientHeight]"
    )
    assert min(room[:2]) >= 150 and min(room[2:]) >= 40, room
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (int(ground.split("(")[1].split(",")[0]) < 100) is (
        theme == "dark"
    ) and browser.complaints == []
    browser.press("#theme")
    assert browser.js("getComputedStyle(document.body).backgroundColor") != ground
