"""The live view in a Chromium, from disk and offline: a model writes, and what is shown is what it did."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers import corpus
from helpers.stepper import Live
from helpers.stepper.live import PROMPT
from helpers.stepper.page import Section, build_page, file_script
from tests.browser.conftest import Show
from tests.written import unit

pytestmark = pytest.mark.browser
PHONE = {"width": 360, "height": 740}
LONG = 60_000  # milliseconds that a run may take on a busy machine

# The clock of a pass, the same on every machine: each token that runs takes so many milliseconds.
CLOCK = """{{
  const {{ get }} = Object.getOwnPropertyDescriptor(MessageEvent.prototype, 'data');
  Object.defineProperty(MessageEvent.prototype, 'data', {{ get() {{
    const data = get.call(this);
    return data?.op === 'pass' ? {{ ...data, ms: {token_ms} * data.tokensRun }} : data;
  }} }});
}}"""
READ = """() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
  return {
    prompt: texts('.wid-token-prompt'), said: texts('.wid-token-said'),
    spoken: texts('.wid-paper [aria-live] span'),
    columns: document.querySelectorAll('.wid-run .wid-columns.kept i').length,
    counters: texts('.wid-counter b'), sentence: texts('.wid-sentence').join(' '),
    act: texts('.wid-act').join(' '),
    lanes: [...document.querySelectorAll('.wid-runner')].map((lane) => ({
      told: ['h3', 'p'].map((name) => lane.querySelector(name).textContent).join(': '),
      out: [...lane.querySelectorAll('.wid-word:not(.ahead)')].map((word) => word.textContent),
      wide: [...lane.querySelectorAll('i')].map((one) => parseFloat(one.style.getPropertyValue('--wide'))),
      high: [...lane.querySelectorAll('i')].map((block) => parseFloat(block.style.height)),
    })),
    shares: [...document.querySelectorAll('.wid-tap')].map(
      (word) => parseFloat(word.style.getPropertyValue('--share'))),
    dotted: texts('.wid-tap.other'),
    far: [...document.querySelectorAll('.wid-far i')].map((cell) => cell.className === 'stale'),
    goes: texts('.wid-reply-said'),
  };
}"""


@pytest.fixture
def open_page(show: Show) -> Show:
    def opened(address: str = "", token_ms: int = 1, **options: Any) -> Page:
        script = CLOCK.format(token_ms=token_ms)
        return show(Live(), address, script=script, **{"viewport": PHONE, **options})

    return opened


def written(page: Page) -> dict[str, Any]:
    """What is shown when the model has written."""
    page.locator(".wid-acts").wait_for(timeout=LONG)
    shown: dict[str, Any] = page.evaluate(READ)
    return shown


def act(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def test_enter_and_the_model_writes_and_again_without_the_cache(open_page: Show) -> None:
    page = open_page(reduced_motion="reduce")
    box = page.locator("textarea")
    expect(box).to_have_value(PROMPT)
    box.press("Enter")
    shown = written(page)
    sentence = shown["said"]
    words = len(sentence)
    assert "".join(shown["prompt"]) == PROMPT.replace(" ", "")
    assert shown["said"][-6:] == ["by", "Mia", "from", "Oslo", ".", "<eos>"]
    assert [word.strip() for word in shown["spoken"]] == shown["said"]
    assert shown["columns"] == 23 + words - 1, "the last word has not run"
    assert shown["counters"][2] == str(23 + words - 1)
    sum_of = f"KV entries of {23 + words - 1} tokens: 23 of your text, {words - 1} of its {words} new tokens"
    expect(page.locator(".wid-drawer-name")).to_contain_text(sum_of)
    llama = f"Llama-3.1-8B would keep {(23 + words - 1) * 0.131072:.2f} MB"  # 128 KiB a token
    expect(page.locator(".wid-sizes")).to_contain_text(llama)
    act(page, "without the cache")
    expect(page.locator(".wid-sizes")).to_contain_text(llama)
    expect(page.locator(".wid-who")).to_contain_text("0.76 million parameters, 1.53 MB")
    act(page, "20 times")
    page.locator(".wid-act .wid-sentence").wait_for(timeout=LONG)
    expect(page.locator(".wid-act")).not_to_contain_text("Both are shown")  # where nothing moves
    shown = page.evaluate(READ)
    every = sum(23 + n for n in range(words))
    cached, plain = shown["lanes"]
    for lane, name, run in ((cached, "with", 23 + words - 1), (plain, "without", every)):
        counted = f"{words} of {words} tokens out, {unit(run / 1000, 's')}, {run:,} tokens processed"
        assert lane["told"] == f"{name} the cache: {counted}"
        assert lane["out"] == sentence
        assert len(lane["wide"]) == words
    tall = 100 / (23 + words - 1)  # of one token
    assert plain["high"] == pytest.approx([tall * (23 + n) for n in range(words)])
    assert cached["high"] == pytest.approx([tall * 23, *[tall] * (words - 1)])
    assert sum(plain["wide"]) == pytest.approx(100, abs=1)
    assert sum(cached["wide"]) == pytest.approx(100 * (23 + words - 1) / every, abs=1), "both on one clock"
    message = f"The same {words} tokens, for {every:,} tokens processed instead of {23 + words - 1}"
    assert shown["sentence"].startswith(message)
    assert shown["sentence"].endswith("You said 20 times.")
    half = words // 2
    first, last = (
        unit(sum(23 + n for n in part) / 1000, "s") for part in (range(half), range(words)[-half:])
    )
    waits = f"first {half} tokens took {first}, the last {half} took {last}: the longer the text"
    assert waits in shown["act"]


def test_ten_endings_are_ten_draws_of_which_the_first_is_the_one_that_was_written(open_page: Show) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("textarea").fill("Mia writes from")
    page.locator("textarea").press("Enter")
    said = written(page)["said"]
    act(page, "Ten endings")
    page.locator(".wid-act li").first.wait_for(timeout=LONG)
    endings = [ending.replace(".", " .").split() for ending in page.locator(".wid-act li").all_inner_texts()]
    assert len(endings) == 10
    assert [ending[:-1] for ending in endings[:1]] == [said[:8]]
    assert all(len(ending) == 9 or ending[-1] == "<eos>" for ending in endings)
    firsts = {ending[0] for ending in endings}
    assert firsts < {*corpus.CITIES}
    assert len(firsts) > 5, "of fifty cities"
    expect(page.locator(".wid-sentence")).to_contain_text(f"begin with {len(firsts)} different words")


def test_what_it_looked_at_and_a_word_changed(open_page: Show) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("textarea").press("Enter")
    words = written(page)["said"]
    act(page, "What did it look at?")
    page.locator(".wid-tap").first.wait_for()
    shown = page.evaluate(READ)
    by = 23 + words.index("by")
    assert re.match(
        rf"At by, token {by + 1}, head 3 of layer 1 found Mia: it took \d+% from", shown["sentence"]
    )
    assert max(range(len(shown["shares"])), key=shown["shares"].__getitem__) == 11
    assert {"by", "from", "in"} <= {*shown["dotted"]}
    assert not {"the", "Today", "Mia"} & {*shown["dotted"]}, "no name where none is found"
    page.locator(".wid-tap", has_text="from").last.click()
    assert re.search(r"^At from, token \d+, head 3 of layer 1 found Oslo", page.evaluate(READ)["sentence"])
    page.locator(".wid-tap", has_text="Today").click()
    assert (
        "At Today, token 18, head 3 of layer 1 found no name and no city" in page.evaluate(READ)["sentence"]
    )
    act(page, "Change a word")
    page.locator(".wid-far").wait_for()
    shown = page.evaluate(READ)
    text = 23 + words.index("by") + 1
    lines = [shown["far"][n : n + text] for n in range(0, len(shown["far"]), text)]
    assert lines[0] == [n == 11 for n in range(text)], "in layer 1 a KV entry is made of its own token alone"
    assert lines[1:] == [[n >= 11 for n in range(text)]] * 3
    assert shown["goes"] == ["Mia from Oslo. <eos>", "Emma from Oslo. <eos>"]
    assert shown["prompt"][11] == "Emma"
    assert len(shown["prompt"]) + len(shown["said"]) == text, "the text ends where the model goes on anew"
    expect(page.locator(".wid-act")).to_contain_text("Token 12 was Mia. Now it is")
    expect(page.locator(".wid-act")).to_contain_text(f"The other {text - 11} of these {text} tokens must run")
    assert "no token looks ahead" in shown["sentence"]
    expect(page.locator(".wid-act")).to_contain_text(
        "ran both texts through the model and compared their KV entries"
    )
    expect(page.locator(".wid-act")).to_contain_text(
        "In layer 1 a KV entry is computed from its own token alone"
    )
    page.locator("select").select_option("Leo")
    expect(page.locator(".wid-reply-said").last).to_contain_text("Leo from Oslo.")


def test_the_same_text_sent_twice_and_with_a_word_changed(open_page: Show) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("textarea").press("Enter")
    written(page)
    act(page, "Send it twice")
    expect(page.locator(".wid-act .wid-sentence")).to_contain_text("needs 1 token processed instead of 23")
    lines = page.locator(".wid-act .wid-runner")
    for name, kept in (("first time", 0), ("text again", 22), ("With Emma in place of Mia", 11)):
        line = lines.filter(has_text=name)
        expect(line).to_contain_text(f"{23 - kept} of 23 tokens processed, {unit((23 - kept) / 1000, 's')}")
        assert (line.locator(".read").count(), line.locator(".written").count()) == (kept, 23 - kept)
    page.locator(".wid-tap", has_text="nice").click()
    expect(lines.last).to_contain_text("2 of 23 tokens processed")
    page.locator(".wid-tap", has_text="sunny").click()
    expect(lines.last).to_contain_text("16 of 23 tokens processed")


def test_slow_motion_stops_at_once_and_the_text_can_be_changed(open_page: Show) -> None:
    page = open_page(token_ms=100)
    page.locator("textarea").press("Enter")
    page.locator(".wid-token-said").nth(1).wait_for(timeout=LONG)
    expect(page.locator(".wid-run .soft")).to_have_text("Shown at the speed it ran.")  # which lasts enough
    page.keyboard.press("Escape")
    sentence = written(page)["said"]
    assert len(sentence) < 28, "the whole text has 28 words"
    page.evaluate("new Promise((later) => setTimeout(later, 300))")
    shown = page.evaluate(READ)
    assert shown["said"] == sentence
    assert shown["columns"] == 23 + len(sentence) - 1
    act(page, "without the cache")
    expect(page.locator(".wid-act")).to_contain_text(f"For these {len(sentence)} new tokens")
    act(page, "Edit the text")
    expect(page.locator("textarea")).to_have_value(PROMPT)


def test_a_race_drips_in_both_lanes_by_the_factor_of_the_writing(open_page: Show) -> None:
    page = open_page()
    page.evaluate("scrollTo(0, 0); document.body.style.paddingBottom = '900px'")
    page.locator("textarea").press("Enter")
    page.locator(".wid-token-said").nth(1).wait_for(timeout=LONG)
    page.wait_for_function("() => document.querySelector('.wid-paper').getBoundingClientRect().top < 20")
    sentence = written(page)["said"]
    expect(page.locator(".wid-run .soft")).to_have_text("Shown 30 times slower than it ran.")
    act(page, "without the cache")
    act(page, "5 times")
    page.locator(".without .wid-word:not(.ahead)").nth(2).wait_for(timeout=LONG)
    page.locator(".wid-runner:not(.without) .ahead").first.wait_for(state="detached", timeout=LONG)
    shown = page.evaluate(READ)
    cached, plain = shown["lanes"]
    assert cached["out"] == sentence
    assert 3 <= len(plain["out"]) < len(sentence)
    assert plain["out"] == sentence[: len(plain["out"])]
    assert shown["prompt"]
    assert shown["said"] == [], "each lane has its own words"
    expect(page.locator(".wid-act > .soft").first).to_contain_text(
        "Both are shown 30 times slower than they ran."
    )
    page.keyboard.press("Escape")
    expect(page.locator(".wid-act .wid-sentence")).to_contain_text("Stopped after")


def test_words_that_the_model_does_not_know(open_page: Show) -> None:
    page = open_page()
    expect(page.locator(".wid-knows")).to_contain_text("It knows 183 words")
    box = page.locator("textarea")
    box.fill("Mia. Em writes from Oslo.")
    expect(page.locator(".wid-hint")).to_contain_text(
        "The model does not know Em. Perhaps you mean", timeout=LONG
    )
    act(page, "Emil")
    expect(box).to_have_value("Mia. Emil writes from Oslo.")
    box.fill("<img src=x onerror=alert(1)> writes")
    box.press("Enter")
    expect(page.locator(".wid-hint")).to_have_text(
        "Left out, because the model does not know them: img, src, x, onerror, alert, 1."
    )
    assert written(page)["prompt"] == ["writes"]
    act(page, "Edit the text")
    box.fill("Hello")
    box.press("Enter")
    expect(page.locator(".wid-hint")).to_have_text("The model does not know Hello.")
    box.fill(" ")
    box.press("Enter")
    expect(page.locator(".wid-hint")).to_contain_text("Got no words; expected at least one")
    box.fill("Mia. " * 51)
    box.press("Enter")
    expect(page.locator(".wid-hint")).to_contain_text(
        "Got 102 tokens, words and full stops; expected at most 100"
    )


def test_what_is_typed_is_read_in_words_of_the_model(open_page: Show) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("textarea").fill("mia writes from Oslo! Today weather is so nice<eos>Today")
    hint = page.locator(".wid-hint")
    expect(hint).to_have_text(
        "It reads mia as Mia. It leaves out !, because it knows no mark but the full stop.",
        timeout=LONG,
    )
    page.locator("textarea").press("Enter")
    text = ["Mia", "writes", "from", "Oslo", "Today", "weather", "is", "so", "nice", "<eos>", "Today"]
    assert written(page)["prompt"] == text
    assert written(page)["said"]


def test_an_address_holds_the_text_the_seed_and_the_run(open_page: Show) -> None:
    page = open_page(address="#diary=Ada+lives+in+Tokyo.&seed=3", reduced_motion="reduce")
    page.locator("textarea").press("Enter")
    page.wait_for_url("**#diary=Ada+lives+in+Tokyo.&seed=3&run=on")
    first = written(page)["said"]
    act(page, "Another ending")
    page.wait_for_url("**seed=4&run=on")
    second = written(page)["said"]
    assert second != first
    page.evaluate(
        "location.hash = '#diary=Ada+lives+in+Tokyo.&seed=3&run=on'"
    )  # which differs in the seed alone
    expect(page.locator(".wid-token-said")).to_have_text(first, timeout=LONG)
    act(page, "Edit the text")
    page.wait_for_url("**seed=3")
    again = open_page(address="#diary=Ada+lives+in+Tokyo.&seed=4&run=on", reduced_motion="reduce")
    assert written(again)["said"] == second, "a run's address runs it again"


def test_the_address_of_a_run_tells_what_the_page_has_at_first(open_page: Show) -> None:
    page = open_page(address="#run=off", reduced_motion="reduce")
    expect(page.locator(".wid-advice")).to_contain_text("no such run")
    page.locator("textarea").press("Enter")
    page.wait_for_url("**run=on&diary=Mia+writes+from+Oslo.**&seed=12")


@pytest.mark.parametrize("there", [True, False])
def test_the_model_beside_the_page(show: Show, tmp_path: Path, there: bool) -> None:
    name, script = file_script(Live.file)
    if there:
        (tmp_path / name).write_text(script, encoding="utf-8")
    text = build_page("Live", [Section(view=Live())], separate_files=True)
    page = show(text, width=280, allowed="ERR_FILE_NOT_FOUND", reduced_motion="reduce")
    page.locator("textarea").press("Enter")
    if there:
        assert written(page)["said"]
    else:
        expect(page.locator(".wid-hint")).to_contain_text("expected model.js in the folder of this page")
