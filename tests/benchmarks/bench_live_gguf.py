"""Run a published model in Chromium: compare its replies with Python's, and measure speed and memory.

    python -m tests.benchmarks.bench_live_gguf        # some minutes; --prompts 5 runs only 5 prompts

There are 50 prompts, and each reply has eight tokens. The model file is that of `published.find_published()`,
selected in a file input as a reader would. pytest does not run this benchmark.
"""

from __future__ import annotations

import statistics
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from helpers.model import published
from helpers.model.generate import generate
from helpers.model.load import load, load_tokenizer
from helpers.stepper import script
from tests.benchmarks import common
from tests.machine import find_chromium

PLACES = ["Oslo", "the old library", "a small island", "Mars", "my kitchen"]
BEGINNINGS = [
    "Yesterday we went to {} and saw",
    "The best way to describe {} is",
    "Three facts about {}: 1.",
    "Dear Emma, I write to you from {} because",
    "def visit(place={!r}):",
    "Nobody who lives near {} has ever",
    "Question: what is special about {}? Answer:",
    "When it rains in {}, people",
    "Once upon a time, in {}, there was",
    "{} — 2024. The mayor said",
]
PROMPTS = [beginning.format(place) for beginning in BEGINNINGS for place in PLACES]
STEPS = 8
START = """() => {
  let [done, heard] = [null, []];
  const { ask } = startLive((answer) => {
    if (answer.op !== "progress") heard.push(answer);
    if (!["pass", "progress"].includes(answer.op)) [done, heard] = [done(heard), []];
  });
  const file = () => document.querySelector("input").files[0];
  window.asked = (message) =>
    new Promise((resolve) => {
      done = resolve;
      ask({ id: 0, ...message, ...(message.do === "load" ? { file: file() } : {}) });
    });
}"""
WRITE: dict[str, Any] = {"do": "write", "steps": STEPS, "cache": True, "noEos": False, "record": []}
WRITE["settings"] = {"temperature": 0, "seed": 0}


def memory() -> int:
    """Return the memory in bytes that is used only by child processes, such as those of Chromium."""
    return sum(process.memory_full_info().uss for process in psutil.Process().children(recursive=True))


def main() -> None:
    """Print the number of equal replies, the tokens per second, and the memory in addition to the file."""
    prompts = PROMPTS[: common.options(__doc__, prompts=len(PROMPTS)).prompts]
    if (found := published.find_published()) is None:
        raise SystemExit("the published model cannot be had here")
    model, tokenizer = load(found), load_tokenizer(found)
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=find_chromium()).new_page()
        page.set_content(f"<script>{script.bundle()}</script><input type=file>")
        page.set_input_files("input", found)
        page.evaluate(START)
        before = memory()
        loaded = page.evaluate("asked({ do: 'load', kind: 'gguf' })")[-1]
        print(f"{loaded['name']}: {loaded['bytes'] / 1e6:.0f} MB")
        equal, milliseconds, most = 0, [], 0
        for prompt in prompts:
            ids = tokenizer.encode(prompt)
            *passes, written = page.evaluate("asked", WRITE | {"tokens": ids})
            milliseconds += [each["ms"] for each in passes[1:]]
            most = max(most, memory())
            wanted = list(generate(model, ids, STEPS))
            equal += written["tokens"] == wanted
            if written["tokens"] != wanted:
                print(f"{prompt!r}: {tokenizer.decode(written['tokens'])!r}, {tokenizer.decode(wanted)!r}")
    print(f"words as in Python: {equal} of {len(prompts)} prompts")
    speed = 1000 / statistics.median(milliseconds)
    print(f"words a second, cached: {speed:.1f}, {common.conditions()}")
    print(f"memory beside the file, as it writes: {(most - before - loaded['bytes']) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
