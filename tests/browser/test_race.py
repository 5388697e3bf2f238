"""The race in a Chromium, on the saved page: from disk, with the network off."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers.drawing.palette import THEMES
from helpers.recording.diary import load_diary
from helpers.stepper import Race
from helpers.stepper.format import VIEW
from helpers.trace import Run, Trace
from tests.browser.conftest import Show
from tests.made_traces import HOSTILE, record_toy
from tests.written import clipped

pytestmark = pytest.mark.browser

RACED: dict[str, Callable[[], Trace]] = {
    "diary": load_diary,
    "hostile": lambda: record_toy(HOSTILE, numbers=list(range(1, 9))),
}
READ = """() => ({
  stage: document.querySelector(".wid-race").dataset.stage,
  t: Number(document.querySelector("input[type=range]").value),
  height: document.querySelector(".wid-race").offsetHeight,
  title: document.querySelector(".wid-prompt-title").textContent,
  axis: document.querySelector(".wid-axis").textContent,
  sentence: document.querySelector(".wid-sentence").textContent,
  spoken: document.querySelector("input[type=range]").getAttribute("aria-valuetext"),
  said: [...document.querySelectorAll(".wid-text-so-far .wid-word")].map((word) => word.textContent),
  lanes: [...document.querySelectorAll(".wid-lane")].map((lane) => ({
    names: [lane.querySelector("h3").textContent, lane.getAttribute("aria-label")],
    counts: [...lane.querySelectorAll("b")].map((b) => Number(b.textContent.replaceAll(",", ""))),
    words: [...lane.querySelectorAll(".wid-reply .wid-word")]
      .filter((word) => getComputedStyle(word).visibility === "visible").map((word) => word.textContent),
    done: 100 - parseFloat(lane.querySelectorAll(".wid-legs")[1].style.clipPath.split(" ")[1]),
    over: lane.classList.contains("over"),
  })),
})"""
# What is said from now on, and how often something is drawn.
NOTE = """() => {
  Object.assign(window, { said: [], drawn: 0 });
  const sentence = document.querySelector(".wid-sentence");
  const what = { attributes: true, childList: true, characterData: true, subtree: true };
  new MutationObserver(() => said.push(sentence.textContent)).observe(sentence, what);
  new MutationObserver(() => drawn++).observe(document.querySelector(".wid-race"), what);
}"""


@pytest.fixture
def race(show: Show) -> Show:
    """Open a trace's race, at an address, with a theme or without motion."""

    def opened(trace: Trace, address: str = "", **media: Any) -> Page:
        page = show(Race(trace), address, **media)
        page.locator(".wid-race").focus()
        return page

    return opened


def at(trace: Trace, run: Run, t: float) -> tuple[list[int], list[str]]:
    """The tokens processed, and the words, that the passes finished by a time gave."""
    ends = accumulate(step.counts["positions"] for step in run.steps)
    done = [step for step, end in zip(run.steps, ends, strict=True) if end <= t]
    tokens = trace.sequences[0].tokens
    counts = [sum(step.counts["positions"] for step in done)]
    outs = [out for step in done for out in step.parts[0].out]
    return counts, [clipped(tokens[out.chosen].text, 24) for out in outs]


@pytest.mark.parametrize("name", RACED)
def test_every_moment_is_the_traces(race: Show, name: str) -> None:
    """By the arrow key from pass to pass: counters and words of both lanes."""
    trace = RACED[name]()
    runs = trace.runs
    ends = [list(accumulate(step.counts["positions"] for step in run.steps)) for run in runs]
    moments = sorted({0, *ends[0], *ends[1]})
    page = race(trace)
    first = shown = page.evaluate(READ)
    prompt = trace.sequences[0].tokens[: trace.sequences[0].prompt]
    assert first["title"] == f"prompt, {len(prompt)} token{'s' * (len(prompt) != 1)}"
    assert first["axis"] == f"{VIEW['race']['axis']}{moments[-1]:,}"
    assert [lane["names"] for lane in first["lanes"]] == [["with the KV cache"] * 2, ["without"] * 2]
    assert first["said"] == [clipped(token.text, 24) for token in prompt]
    for t in moments:
        shown = page.evaluate(READ)
        assert (shown["t"], shown["height"]) == (t, first["height"]), "nothing moves but what runs"
        assert shown["spoken"] == f"{t:,} of {moments[-1]:,} tokens processed"
        for run, its_ends, lane in zip(runs, ends, shown["lanes"], strict=True):
            counts, words = at(trace, run, t)
            assert (lane["words"], lane["over"]) == (words, t >= its_ends[-1])
            assert t not in its_ends or lane["counts"] == counts
            assert lane["done"] == pytest.approx(min(100, 100 * t / its_ends[-1]), abs=0.01)
        page.keyboard.press("ArrowRight")
    assert shown["stage"] == "done"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(READ)["t"] == moments[-2]
    page.keyboard.press("Home")
    assert page.evaluate(READ) == first


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_ends_where_the_end_key_does(race: Show, motion: str) -> None:
    page = race(load_diary(), reduced_motion=motion)
    play = page.get_by_role("button", name="Play")
    page.keyboard.press("End")
    end = page.evaluate(READ)
    page.get_by_role("button", name="4×").click()
    page.evaluate(NOTE)
    page.locator(".wid-race").focus()
    page.keyboard.press(" ")
    page.keyboard.press(" ")
    expect(play).to_be_visible()
    assert page.evaluate(READ)["t"] < 828
    page.evaluate("drawn = 0")
    play.click()
    expect(page.locator(".wid-race")).to_have_attribute("data-stage", "done", timeout=15_000)
    expect(play).to_be_visible()
    assert page.evaluate(READ) == end
    assert len(page.evaluate("said")) <= 5, "a sentence for each stage, none for each frame"
    assert (page.evaluate("drawn") < 20) == (motion == "reduce"), "from stop to stop"
    expect(page).to_have_url(re.compile("#race=828$"))


def test_what_colours_mean(race: Show) -> None:
    page = race(load_diary())
    legend = "(nodes) => nodes.map((node) => [node.firstChild.className.split(' ')[1], node.textContent])"
    assert page.locator(".wid-legend li").evaluate_all(legend) == [
        ["prompt", "prompt"],
        ["fresh", "new word"],
        ["again", "processed again"],
    ]
    paint = """(kind) => {
      const nodes = document.querySelectorAll(`.wid-legend .${kind}, .wid-legs:not(.coming) .${kind}`);
      return [...nodes].map((node) => getComputedStyle(node))
        .map(({ backgroundColor, backgroundImage }) => [backgroundColor, backgroundImage !== "none"].join());
    }"""
    colours = [THEMES["light"][name] for name in ("ink", "gen")]
    solid = [f"rgb({int(c[1:3], 16)}, {int(c[3:5], 16)}, {int(c[5:], 16)}),false" for c in colours]
    assert [set(page.evaluate(paint, kind)) for kind in ("prompt", "fresh")] == [{one} for one in solid]
    assert {mark.endswith("true") for mark in page.evaluate(paint, "again")} == {True}


def test_an_address_is_a_time_or_the_nearest(race: Show) -> None:
    good = {"": 0, "#race=414": 414, "#race=207.0&pass=2": 207, "#race=828": 828}
    bad = dict.fromkeys(["=", "=0.", "=1e9", "=<b>", "=NaN", "=%", "=-0.1"], 0) | {"=829": 828}
    page = race(load_diary(), "#race=1")
    for address, t in {**good, **{f"#race{value}": t for value, t in bad.items()}}.items():
        page.evaluate("(hash) => { location.hash = hash; }", address)
        assert page.evaluate(READ)["t"] == t, address
        sentence = VIEW["labels"]["no such"].replace("{names}", "race")
        assert page.locator(".wid-advice").text_content() == ("" if address in good else sentence)
    page.get_by_role("slider").fill("10.25")
    page.wait_for_url("**#race=10.25")
    assert page.locator(".wid-advice").text_content() == "", "no longer true, no longer said"


def test_every_width_and_both_themes(race: Show) -> None:
    page = race(load_diary(), "#race=306", color_scheme="light")
    note = page.locator(".wid-note").first
    for width, scheme in ((280, "light"), (400, "dark"), (1600, "light"), (280, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(page.locator(".wid-view.wid-dark")).to_have_count(int(scheme == "dark"))
        less = "46 instead of 828"
        expect(note).to_have_text(less if width < 420 else "done: 46 tokens processed instead of 828")
        assert note.evaluate("(node) => node.scrollWidth <= node.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
