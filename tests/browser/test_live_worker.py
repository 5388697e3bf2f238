"""The Worker in a Chromium: from the bundle, on a page from disk, it says what Python says."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import torch
from halve import PATH
from playwright.sync_api import Page

from helpers.model.generate import generate
from helpers.stepper import script
from tests.test_live_decoder import WRITE, load_halved

pytestmark = pytest.mark.browser
torch.set_num_threads(1)

# Loads the file, lets it write, then stops it as it writes without end: the three answers.
TALK = """([file, write]) => new Promise((resolve) => {
  const bytes = Uint8Array.from(atob(file), (c) => c.charCodeAt(0)).buffer;
  const ends = [];
  const live = startLive((answer) => {
    if (answer.id === 2 && answer.op === "pass") live.ask({ do: "stop" });
    if (answer.op !== "pass" && ends.push(answer) === 3) resolve([...ends, bytes.byteLength]);
  });
  live.ask({ do: "load", id: 0, file: bytes, kind: "safetensors" }, [bytes]);
  live.ask({ ...write, id: 1 });
  live.ask({ ...write, id: 2, noEos: true, steps: 1e6, cache: false });
})"""


def test_a_page_from_disk_writes_and_stops(page: Page, tmp_path: Path, problems: list[str]) -> None:
    text = f"{script.bundle()}\nwindow.startLive = startLive;"
    (tmp_path / "page.html").write_text(
        f"<!doctype html><meta charset=utf-8><script>{text}</script>", "utf-8"
    )
    page.context.set_offline(True)
    page.goto((tmp_path / "page.html").as_uri())
    model, tokenizer = load_halved()
    prompt = tokenizer.encode("Mia writes from Oslo . The soup is so")
    file = base64.b64encode(PATH.read_bytes()).decode()
    loaded, written, stopped, left = page.evaluate(
        TALK, [file, WRITE | {"tokens": prompt, "record": [[0, 0]]}]
    )
    assert (loaded["op"], loaded["config"]["nLayers"], loaded["bytes"]) == ("loaded", 4, PATH.stat().st_size)
    assert left == 0, "the file was given away, not copied"
    assert written["tokens"] == list(generate(model, prompt, len(written["tokens"])))
    assert len(written["trace"]["weights"]["rows"]) == len(prompt) + len(written["tokens"]) - 1
    assert stopped["why"] == "stopped"
    assert len(stopped["tokens"]) >= 1
    assert problems == []
