"""How quick the stepper is, and how big its traces: prints a table; no part of the test run.

    python tests/benchmarks/bench_stepper.py
    python tests/benchmarks/bench_stepper.py --no-lab       # without the time to the first one in JupyterLab

A step is timed in the page: the widget's own work (its performance entries named "wid-step"), and that
work with the layout that follows it. Of the race each frame ("wid-frame"); of a step that is animated its
work, and the time between the frames that follow. A page's first picture is the first frame with a view in
it, counted from where its script begins.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from helpers.recording.diary import load_diary  # noqa: E402
from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Race, Stepper, WhatIf  # noqa: E402
from helpers.stepper.page import Section, save  # noqa: E402
from helpers.stepper.view import View  # noqa: E402
from helpers.trace import Trace  # noqa: E402
from tests.browser.lab import FLAGS, Lab, open_notebook  # noqa: E402
from tests.machine import find_chromium  # noqa: E402

STEPS = 200
CELL = (
    "from helpers.recording.toy import record_toy\nfrom helpers.stepper import Stepper\nStepper(record_toy())"
)

WALK = """(steps) => {
  const [back, next] = document.querySelectorAll('.wid-buttons button');
  const root = document.querySelector('.wid-stepper');
  const last = Number(document.querySelector('.wid-buttons input').max);
  const took = [];
  let forward = true;
  while (took.length < steps) {
    const at = Number(root.dataset.event);
    if (at === last) forward = false;
    if (at === 0) forward = true;
    const start = performance.now();
    (forward ? next : back).click();
    root.getBoundingClientRect();
    took.push(performance.now() - start);
  }
  return [performance.getEntriesByName('wid-step').slice(-steps).map((entry) => entry.duration), took];
}"""


MOVE = """async (steps) => {
  const [, next] = document.querySelectorAll('.wid-buttons button');
  const frame = () => new Promise(requestAnimationFrame);
  const frames = [];
  for (let n = 0; n < steps; n++) {
    await new Promise((done) => setTimeout(done, 700));
    next.click();
    let last = await frame();
    for (const end = last + 480; last < end; ) {
      const now = await frame();
      frames.push(now - last);
      last = now;
    }
  }
  return [performance.getEntriesByName('wid-step').slice(-steps).map((entry) => entry.duration), frames];
}"""
RACE = """async (seconds) => {
  document.querySelector('.wid-race button').click();
  await new Promise((done) => setTimeout(done, 1000 * seconds));
  return performance.getEntriesByName('wid-frame').map((entry) => entry.duration);
}"""
FIRST = """() => {
  new MutationObserver((_, observer) => {
    if (!document.getElementById('views')) return;
    window.scriptStart = performance.now(); // the parser lets observers run before it runs a script
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });
  const look = () => {
    if (!document.querySelector('.wid-view button')) requestAnimationFrame(look);
    else window.firstPicture = performance.now() - window.scriptStart;
  };
  requestAnimationFrame(look);
}"""


def long_prompt(tokens: int, reply: int) -> Trace:
    """A run of so many prompt tokens and so many generated ones, <eos> banned."""
    return record_toy(
        [f"w{i}" for i in range(tokens)], [i % 23 for i in range(tokens)], ban_eos=True, max_new=reply
    )


# A reply of n leaves prompt + n - 1 rows: 4 tokens going to 64, 508 going to 512.
TRACES: dict[str, Callable[[], Trace]] = {
    "toy, 5 tokens": record_toy,
    "24 tokens": lambda: record_toy(ban_eos=True, max_new=21),
    "4 to 64 tokens": lambda: record_toy(ban_eos=True, max_new=61),
    "508 to 512 tokens": lambda: long_prompt(508, 5),
}


def quantiles(milliseconds: list[float]) -> str:
    """Median and 95th percentile."""
    return f"{statistics.median(milliseconds):6.1f}  {statistics.quantiles(milliseconds, n=20)[-1]:6.1f}"


def steps(browser: Browser, trace: Trace, cache: bool, folder: Path) -> tuple[str, str]:
    """Time steps through a saved page: the widget's work alone, and with layout."""
    path = folder / "bench.html"
    Stepper(trace, cache=cache).save_html(path)
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(path.as_uri())
    page.locator(".wid-buttons").wait_for()
    page.evaluate(WALK, 20)
    work, with_layout = page.evaluate(WALK, STEPS)
    page.close()
    return quantiles(work), quantiles(with_layout)


def moves(browser: Browser, trace: Trace, folder: Path) -> tuple[str, str, str]:
    """Time animated steps and the frames that follow, and the race's frames."""
    found = []
    for view, script, size in ((Stepper(trace), MOVE, 8), (Race(trace), RACE, 4)):
        view.save_html(folder / "moves.html")
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto((folder / "moves.html").as_uri())
        page.locator(".wid-buttons").wait_for()
        found.append(page.evaluate(script, size))
        page.close()
    (work, frames), race = found
    return quantiles(work), quantiles(frames), quantiles(race)


def first_picture(browser: Browser, path: Path) -> str:
    """Milliseconds from where the script begins to the first frame with a view in it, ten times."""
    times = []
    for _ in range(10):
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.add_init_script(f"({FIRST})()")
        page.goto(path.as_uri())
        while (first := page.evaluate("window.firstPicture")) is None:
            page.wait_for_timeout(50)
        times.append(first)
        page.close()
    return quantiles(times)


def first_stepper(browser: Browser, lab: Lab) -> tuple[float, float]:
    """Seconds from starting a kernel, and from running the cell, to a stepper on the screen."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    open_notebook(page, lab, lab.write(CELL))
    start = time.perf_counter()
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    ran = time.perf_counter()
    page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")
    page.locator(".wid-stepper .wid-cell").first.wait_for(timeout=60_000)
    end = time.perf_counter()
    page.close()
    return end - start, end - ran


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-lab", action="store_true")
    arguments = parser.parse_args()
    print(f"{'trace':<20} {'JSON, kB':>9} {'page, kB':>9}")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        result = {label: make() for label, make in TRACES.items()}
        for label, trace in result.items():
            Stepper(trace).save_html(folder / "size.html")
            size = (folder / "size.html").stat().st_size
            print(f"{label:<20} {len(trace.to_json().encode()) / 1000:9.1f} {size / 1000:9.1f}")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        print(f"\n{'a step, ms':<20} {'cache':<5} {'work: median, 95%':>18} {'with layout':>18}")
        for label, trace in result.items():
            for cache in (True, False):
                work, with_layout = steps(browser, trace, cache, folder)
                print(f"{label:<20} {'on' if cache else 'off':<5} {work:>18} {with_layout:>18}")
        print(f"\n{'in motion, ms':<20} {'a step':>14} {'between frames':>16} {'frame of the race':>19}")
        for label in ("24 tokens", "4 to 64 tokens"):
            print(f"{label:<20} {'  '.join(moves(browser, result[label], folder))}")
        diary = load_diary()
        parts: list[View] = [Race(diary), Stepper(diary), WhatIf()]
        print(f"\n{'first picture, ms':<20} {'median, 95%':>14}")
        for name, views in {
            "race": parts[:1],
            "stepper": parts[1:2],
            "what if": parts[2:],
            "all": parts,
        }.items():
            save(folder / "first.html", name, [Section(view=view) for view in views])
            print(f"{name:<20} {first_picture(browser, folder / 'first.html')}")
        if not arguments.no_lab:
            lab = Lab(folder)
            try:
                first_stepper(browser, lab)  # the first loads JupyterLab's own scripts
                whole, cell = first_stepper(browser, lab)
                print(f"\nfrom kernel start to the first stepper on screen: {whole:.1f} s,")
                print(f"from running the cell: {cell:.1f} s")
            finally:
                lab.stop()
        browser.close()


if __name__ == "__main__":
    main()
