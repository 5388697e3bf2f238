"""A reader's own model in a Chromium: opened, refused, stopped, fetched, written with, by what is shown."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from playwright.sync_api import Locator, expect

from helpers.model.generate import generate
from helpers.model.load import load, load_tokenizer
from helpers.stepper import Live
from tests.browser.conftest import Show, page_of
from tests.gguf_file import write
from tests.test_live_gguf import SIZES, WORDS
from tests.tiny import tiny

pytestmark = pytest.mark.browser
torch.set_num_threads(1)
LONG = 60_000  # milliseconds that something may take on a busy machine
CHATML = {"tokenizer.chat_template": "{{ '<|im_start|>' + message.role }}"}
TEXT = "nice weather is so " * 8
# What would turn the text around, and what would be markup, as a file may have it.
HOSTILE = {"general.name": "<img src=x onerror=alert(1)>\u202e"}
Opened = Callable[..., Locator]


def model_file(folder: Path, name: str = "tiny.gguf", **more: Any) -> Path:
    return write(
        folder / name,
        tiny(**SIZES | {"max_seq_len": 128}),
        GGMLQuantizationType.Q8_0,
        WORDS | more.pop("metadata", {}),
        **more,
    )


@pytest.fixture
def opened(show: Show) -> Opened:
    """Open a page with a Live in it, this part unfolded by keys; a test may let a fetch fail."""

    def open_page(what: Live | str | None = None, script: str = "", **options: Any) -> Locator:
        page = show(what or Live(), width=360, script=script, allowed="Failed to load", **options)
        own = page.locator(".wid-own")
        own.locator("summary").press("Enter")
        return own

    return open_page


def choose(own: Locator, file: Path) -> None:
    """Choose a file by keys alone."""
    button = own.get_by_role("button", name="Open a file")
    with own.page.expect_file_chooser() as make_chooser:
        button.press("Enter")
    make_chooser.value.set_files(file)


def said(own: Locator, who: str = "said") -> list[str]:
    """The tokens that are shown: the model's, or those of the prompt."""
    shown: list[str] = own.locator(f".wid-token-{who}").evaluate_all("all => all.map(one => one.textContent)")
    return shown


def test_a_file_writes_its_words_and_its_rows_stand_on_the_board(opened: Opened, tmp_path: Path) -> None:
    file = model_file(tmp_path)
    own = opened()
    choose(own, file)
    box = own.locator("textarea")
    box.fill(TEXT)
    box.press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    tokenizer = load_tokenizer(file)
    ids = tokenizer.encode(TEXT)
    words = list(generate(load(file), ids, 40))
    assert len(said(own)) == len(words)
    shown = re.sub(r"U\+[0-9A-F]{4,5}", "", "".join(said(own)))  # what would leave no mark, by its number
    assert shown == "".join(filter(str.isprintable, tokenizer.decode(words))), "letters of several tokens"
    expect(own.locator(".wid-drawer-name")).to_contain_text(
        f"the KV entries of {len(ids) + len(words) - 1} tokens"
    )
    expect(own).to_contain_text("asked for at most 40 tokens")
    expect(own.page.locator(".wid-writer > textarea")).to_be_visible()  # the diary's: its Enter is another
    own.get_by_role("button", name="on the board").press("Enter")
    expect(own.locator(".wid-stepper")).to_contain_text(
        f"All {len(ids)} prompt tokens are processed together"
    )
    right = own.locator(".wid-stepper").evaluate("(board) => board.getBoundingClientRect().right")
    assert right <= 360, "cut off at the side"
    own.get_by_role("button", name="without the cache").press("Enter")
    own.get_by_role("button", name="5 times").press("Enter")
    run = len(words) * len(ids) + len(words) * (len(words) - 1) // 2
    expect(own.locator(".wid-sentence")).to_contain_text(f"for {run:,} tokens processed", timeout=LONG)


def test_what_cannot_be_opened_is_refused_by_name_and_the_model_before_stays(
    opened: Opened, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model_file(tmp_path).read_bytes()[:-40])
    other = model_file(tmp_path, "other.gguf", metadata={"general.architecture": "gemma3"})
    own = opened()
    message = own.locator(".wid-told")
    choose(own, broken)
    expect(message).to_contain_text("broken.gguf: The GGUF file cannot be read: it has")
    expect(own.locator("textarea")).to_have_count(0)
    choose(own, model_file(tmp_path, metadata=HOSTILE))
    expect(own).to_contain_text("Its model, <img src=x onerror=alert(1)>U+202E, has 3 layers of 4 heads")
    own.locator("textarea").fill(" ")
    own.locator("textarea").press("Enter")
    expect(message).to_contain_text("Got no words; expected at least one")
    own.locator("textarea").fill("my own text")
    choose(own, other)
    expect(message).to_contain_text(
        "other.gguf: The GGUF file cannot be read: the model's architecture is “gemma3”"
    )
    choose(own, model_file(tmp_path, metadata={"general.name": 5}))
    expect(message).to_contain_text("general.name is 5; expected a text")
    expect(own.locator("textarea")).to_have_value("my own text")
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)


def test_a_file_is_dropped_and_a_question_is_asked(opened: Opened, tmp_path: Path) -> None:
    own = opened()
    file = model_file(tmp_path, metadata=CHATML)
    drop = """([own, bytes, name]) => {
      const moved = new DataTransfer();
      moved.items.add(new File([Uint8Array.from(bytes)], name));
      for (const type of ["dragover", "drop"])
        own.dispatchEvent(new DragEvent(type, { dataTransfer: moved, bubbles: true, cancelable: true }));
    }"""
    own.page.evaluate(drop, [own.element_handle(), [*file.read_bytes()], "dropped.gguf"])
    own.locator("textarea").fill("\u05e9\u05dc\u05d5\u05dd <b>nice</b>")
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    prompt = "".join(said(own, "prompt"))
    assert prompt.startswith("<|im_start|>user\n")
    assert "<b>nice</b><|im_end|>\n<|im_start|>assistant" in prompt
    own.get_by_role("button", name="Edit the text").press("Enter")
    own.get_by_role("button", name="a text to continue").press("Enter")
    own.locator("textarea").fill("nice")
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    assert own.locator(".wid-token-prompt").count() == 1


# Each part of a file takes a while to read, and each token to say, on every machine.
SLOW = """const Plain = Blob;
const slow = `const [read, post] = [Blob.prototype.arrayBuffer, MessagePort.prototype.postMessage];
Blob.prototype.arrayBuffer = async function () {
  await new Promise((later) => setTimeout(later, 100));
  return read.call(this);
};
MessagePort.prototype.postMessage = function (...what) {
  setTimeout(() => post.apply(this, what), 100);
};`;
self.Blob = class extends Plain {
  constructor(parts, about) {
    super(about?.type === "text/javascript" ? [slow, ...parts] : parts, about);
  }
};"""


def test_stop_while_a_file_is_opened_or_a_model_writes(opened: Opened, tmp_path: Path) -> None:
    own = opened(script=SLOW)
    choose(own, model_file(tmp_path))
    page = own.page
    expect(own.locator("progress")).not_to_have_js_property("value", 0)
    own.get_by_role("button", name="Stop").press("Enter")
    expect(own.locator(".wid-told")).to_have_text("Stopped. Nothing was changed.")
    expect(own.locator("textarea")).to_have_count(0)
    choose(own, model_file(tmp_path))
    own.locator("textarea").fill("nice " * 30)
    own.locator("textarea").press("Enter")
    own.locator(".wid-token-said").first.wait_for(timeout=LONG, state="attached")
    page.keyboard.press("Escape")
    own.locator(".wid-acts").wait_for()
    out = said(own)
    assert len(out) < 40
    page.wait_for_timeout(300)
    assert said(own) == out


# Workers that can be reached, to be killed, and that can be short of memory.
WORKERS = """self.workers = [];
const Plain = Worker;
self.Worker = class extends Plain {
  constructor(address) {
    super(address);
    workers.push(this);
  }
  postMessage(message, transfer) {
    if (!self.full || message.do !== "write") return super.postMessage(message, transfer);
    const data = { id: message.id, op: "failed", say: "no more memory" };
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
};"""
KILL = (
    "workers.splice(0).forEach((one) => one.dispatchEvent(new ErrorEvent('error', { message: 'no memory' })))"
)


def test_a_worker_that_fails_is_asked_again_and_one_that_dies_is_started_anew(
    opened: Opened, tmp_path: Path
) -> None:
    own = opened(script=WORKERS, reduced_motion="reduce")
    page = own.page
    choose(own, model_file(tmp_path))
    own.locator("textarea").wait_for(timeout=LONG)
    page.evaluate("self.full = true")
    for box, said_in in ((".wid-own textarea", ".wid-told"), (".wid-writer > textarea", ".wid-hint")):
        page.locator(box).press("Enter")
        expect(page.locator(said_in)).to_have_text("no more memory", timeout=LONG)
    page.evaluate("self.full = false")
    page.locator(".wid-writer > textarea").press("Enter")
    page.locator(".wid-writer > .wid-acts").wait_for(timeout=LONG)
    page.evaluate(KILL)
    for hint in page.locator(".wid-hint, .wid-told").all():
        expect(hint).to_contain_text("has stopped (no memory), and the model is gone; expected it to go on")
    expect(own.locator("textarea")).to_have_count(0)
    choose(own, model_file(tmp_path))
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    page.locator(".wid-writer > textarea").press("Enter")
    page.locator(".wid-writer > .wid-acts").wait_for(timeout=LONG)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path, threading.Event]]:
    """A site's address, its folder, and what lets the second half of a GGUF file through."""
    go_on = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source: Any, outputfile: Any) -> None:
            data = source.read()
            with contextlib.suppress(OSError):  # who asked has gone
                outputfile.write(data[: len(data) // 2])
                if self.path.endswith(".gguf"):
                    go_on.wait(60)
                outputfile.write(data[len(data) // 2 :])

        def log_message(self, *_: Any) -> None:
            pass

    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", folder, go_on
        go_on.set()
        server.shutdown()


def publish(folder: Path, model: Path) -> None:
    (folder / "favicon.ico").touch()
    (folder / "index.html").write_text(page_of(Live(published=model)), encoding="utf-8")


def test_a_published_file_is_fetched_stopped_and_missed(
    opened: Opened, site: tuple[str, Path, threading.Event]
) -> None:
    address, folder, go_on = site
    model = model_file(folder)
    publish(folder, model)
    own = opened(address)
    size = f"{model.stat().st_size / 1000:.0f} kB"
    button = own.get_by_role("button", name=f"Fetch tiny.gguf, {size}")
    button.press("Enter")
    expect(own.locator("progress")).not_to_have_js_property("value", 0)
    expect(own.locator(".wid-opening")).to_contain_text(f"of {size}")
    own.get_by_role("button", name="Stop").press("Enter")
    expect(own.locator(".wid-told")).to_have_text("Stopped. Nothing was changed.")
    go_on.set()
    button.press("Enter")
    own.locator("textarea").press("Enter")
    own.locator(".wid-acts").wait_for(timeout=LONG)
    own.page.route("**/*.gguf", lambda route: route.abort())
    button.press("Enter")
    expect(own.locator(".wid-told")).to_contain_text("tiny.gguf could not be fetched (Failed to fetch)")
    own.page.route("**/*.gguf", lambda route: route.fulfill(status=404))
    button.press("Enter")
    expect(own.locator(".wid-told")).to_contain_text("tiny.gguf could not be fetched (404")
    expect(own.locator(".wid-token-said")).not_to_have_count(0)


def test_a_text_that_the_small_model_cannot_read_goes_to_the_larger_one(
    opened: Opened, site: tuple[str, Path, threading.Event]
) -> None:
    address, folder, go_on = site
    go_on.set()
    publish(folder, model_file(folder))
    own = opened(address)
    box = own.page.locator(".wid-writer > textarea")
    box.fill("Hello, Mia")
    own.page.get_by_role("button", name="Try tiny.gguf").click(timeout=LONG)
    expect(own).to_have_attribute("open", "")
    expect(own.locator("textarea")).to_have_value("Hello, Mia", timeout=LONG)


def test_no_button_and_no_way_out_where_nothing_was_published(opened: Opened) -> None:
    assert "connect-src" not in page_of(Live())
    expect(opened().get_by_role("button")).to_have_count(1)
