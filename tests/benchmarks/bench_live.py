"""Measure the shipped model's time per token in Node.js and in Chromium, and compare it with Python.

    python -m tests.benchmarks.bench_live              # about two minutes

The first table has the median times of a prefill of 64 tokens, and of the next token with and without the
cache. Without the cache, the pass runs 65 tokens. If each of these took as long as the one token with the
cache, the pass would take 65 times as long. Chromium runs the decoder in a Worker. Python runs the taught
model and its fast version, with the same rounded weights, on one thread. Compare ratios within one run of
this benchmark; the load of the machine is printed. pytest does not run this benchmark.

The second table is for a reader who opens the page from disk, on a phone's screen, in a newly started
Chromium, and presses Enter at once. It has the time until the first word is shown, and the longest frames
during the reply and during the first five seconds of a race. In slow motion, the pause is shown longer than
it is. With reduced motion, nothing is slowed down.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from playwright.sync_api import sync_playwright

from helpers.model.cache import StaticCache
from helpers.model.fast import speed_up
from helpers.model.generate import next_token_logits
from helpers.model.transformer import Transformer
from helpers.stepper import Live
from helpers.stepper.page import Section, build_page, file_script
from helpers.timing import seconds_per_call
from tests.benchmarks import common
from tests.browser.lab import FLAGS
from tests.machine import find_chromium, find_node
from tests.test_live_decoder import PATH, load_halved

CONTEXT = 64  # tokens before
HERE = "tests/benchmarks/bench_live.mjs"
BUNDLE = """import { build } from "esbuild";
const { outputFiles } = await build({ entryPoints: [process.argv[1]], bundle: true, format: "iife",
  globalName: "live", write: false });
process.stdout.write(outputFiles[0].text);"""
IN_NODE = f"""import {{ readFileSync }} from "node:fs";
import {{ bench }} from "./{HERE}";
const [path, context, turns] = process.argv.slice(1);
const file = Uint8Array.from(readFileSync(path)).buffer;
console.log(JSON.stringify(bench(file, Number(context), Number(turns))));"""
IN_A_WORKER = """([script, file, context, turns]) => new Promise((resolve) => {
  const text = `${script}; onmessage = ({ data }) => postMessage(live.bench(...data));`;
  const worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => resolve(data);
  worker.postMessage([Uint8Array.from(atob(file), (c) => c.charCodeAt(0)).buffer, context, turns]);
})"""
# Presses Enter as soon as it can; when the text is written, races for so many milliseconds, and stops.
IN_THE_PAGE = """(racing) => new Promise((resolve) => {
  const there = (selector) => document.querySelector(selector);
  const gaps = { writing: [], racing: [] };
  const begun = performance.now();
  let [first, raced, before] = [null, null, null];
  there('.wid-go').click();
  requestAnimationFrame(function frame(now) {
    if (before !== null) gaps[raced ? 'racing' : 'writing'].push(now - before);
    before = now;
    if (first === null && there('.wid-token-said')) first = now - begun;
    if (!raced && there('.wid-guesses')) {
      raced = now;
      there('.wid-guesses button').click();
    } else if (!raced) there('.wid-acts button')?.click();
    if (raced && (now - raced > racing || there('.wid-act .wid-sentence'))) {
      if (!there('.wid-acts')) there('.wid-go').click();
      resolve({ first, ...gaps });
    } else requestAnimationFrame(frame);
  });
})"""
PHONE: Any = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "offline": True}
RACING = 5000  # milliseconds of a race
Times = dict[str, list[float]]


def node(*arguments: Any) -> str:
    """Run a JavaScript module in Node.js, and return its output.

    The first argument is the source of the module. The others are its command-line arguments.
    """
    command = [find_node() or "node", "--input-type=module", "-e", *map(str, arguments)]
    return subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=True).stdout


def in_chromium(turns: int) -> Times:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page, file = browser.new_page(), base64.b64encode(PATH.read_bytes()).decode()
        taken = page.evaluate(IN_A_WORKER, [node(BUNDLE, HERE), file, CONTEXT, turns])
        browser.close()
    return taken


def in_the_page(turns: int, motion: Literal["no-preference", "reduce"]) -> list[dict[str, Any]]:
    """Open the page `turns` times, each time in a new Chromium, and return the measurements of each turn.

    They are the time until the first word is shown, and the durations of frames in the reply and the race.
    """
    met = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(build_page("Live", [Section(view=Live())], separate_files=True), encoding="utf-8")
        name, script = file_script(Live.file)
        (path.parent / name).write_text(script, encoding="utf-8")
        for _ in range(turns):
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
                page = browser.new_page(**PHONE, reduced_motion=motion)
                page.goto(path.as_uri())
                met.append(page.evaluate(IN_THE_PAGE, RACING))
                browser.close()
    return met


def met_by_a_reader(turns: int, motion: Literal["no-preference", "reduce"]) -> list[str]:
    """Return three times in milliseconds, as text, from several turns.

    They are the median time until the first word, the longest frame during a reply, and the longest frame
    during a race.
    """
    met = in_the_page(turns, motion)
    frames = [max(max(one[what]) for one in met) for what in ("writing", "racing")]
    return [f"{ms:.0f}" for ms in (median(one["first"] for one in met), *frames)]


def in_python(model: Transformer, turns: int) -> Times:
    """Return the milliseconds of each task in Python. The first turn, which may compile code, is left out."""
    text = torch.arange(CONTEXT + 1)[None] * 37 % model.config.vocab_size
    taken: Times = {"prefill": [], "cached": [], "uncached": []}

    def time(task: str, work: Callable[[], Any]) -> None:
        taken[task].append(1000 * seconds_per_call(work))

    for _ in range(turns + 1):
        cache, other = (StaticCache(model.config, max_len=CONTEXT + 1) for _ in range(2))
        time("prefill", lambda cache=cache: next_token_logits(model, text[:, :-1], cache))  # type: ignore[misc]
        for _ in range(8):
            time("cached", lambda cache=cache: next_token_logits(model, text[:, -1:], cache))  # type: ignore[misc]
            cache.truncate(CONTEXT)
        time("uncached", lambda other=other: next_token_logits(model, text, other))  # type: ignore[misc]
    return {task: ms[len(ms) // (turns + 1) :] for task, ms in taken.items()}


def main() -> None:
    """Measure the four decoders, then the page, and print a table for each."""
    turns = common.options(__doc__, turns=5).turns
    model, _ = load_halved()
    measured = {
        "node": json.loads(node(IN_NODE, PATH, CONTEXT, turns)),
        "Chromium": in_chromium(turns),
        "Python, plain": in_python(model, turns),
        "Python, fast": in_python(speed_up(model, threads=1), turns),
    }
    rows, tasks = [], ["open", "prefill", "cached", "uncached"]
    for name, taken in measured.items():
        ms = {task: median(times) for task, times in taken.items()}
        shown = [f"{ms[task]:.2f}" if task in ms else "" for task in tasks]
        rows.append([name, *shown, f"{ms['uncached'] / ((CONTEXT + 1) * ms['cached']):.2f}"])
    heads = ["ms", "open", "the 64", "a word, cached", "uncached", "of 65 times cached"]
    common.table(f"A word behind {CONTEXT} tokens, median of {turns} turns", heads, rows)
    rows = [
        ["slow motion", *met_by_a_reader(turns, "no-preference")],
        ["reduced motion", *met_by_a_reader(turns, "reduce")],
    ]
    heads = ["ms", "first word", "longest frame, writing", "racing"]
    common.table(f"The page from disk, {turns} turns", heads, rows)


if __name__ == "__main__":
    main()
