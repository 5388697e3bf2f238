"""Make the silent film from screenshots of the main page: the reply, the race, a stale KV entry.

    python -m tools film               # .github/film/: film.webm and film.mp4; notebooks/pictures/film.png

This needs Chromium (see tests/requirements.txt) and ffmpeg. The captions and the page that shows the film are
in film_page.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page

from helpers.recording.diary import load_diary
from helpers.stepper import Live
from helpers.stepper.format import VIEW
from helpers.stepper.page import build_page, file_script
from tools.film_page import CAPTIONS, FILMS, FOLDER, POSTER, caption_seconds
from tools.handout import TABLE_STYLE
from tools.launch import argument_parser
from tools.pictures import COMPUTED, open_file_page, running_chromium
from tools.site import main_page

START, PAUSE, ROWS, DRIP, WRITTEN, RACE, RACED, KEPT, *STALE = range(len(CAPTIONS))
CODECS = {
    "webm": "-c:v libvpx-vp9 -crf 34 -b:v 0 -cpu-used 3 -row-mt 1",
    "mp4": "-c:v libx264 -preset slow -crf 21 -tune animation -movflags +faststart",
}
OUTPUT = "-an -r 20 -pix_fmt yuv420p"
WIDTH, HEIGHT, SCALE = 960, 540, 4 / 3  # CSS pixels, and the film's pixels per CSS pixel
FRAME, RACE_PACE = 20, 16  # milliseconds of the page's clock per frame; the race is this many times faster
SETTLED = 3  # frames until new KV entries have stopped moving
# Only a view is shown, without its controls, and a caption below.
STYLE = """
body { max-width: none; padding: 8px 10px; }
body > :not(section.shown, #said), section > :not(.view) { display: none !important; }
.view { margin: 0; }
.wid-view { box-sizing: border-box; height: 440px; overflow: hidden; outline: none !important; }
.wid-view :is(.wid-controls, .wid-acts, .wid-own, .wid-sizes, .wid-edit, .wid-sentence, .wid-says),
.wid-run .soft, .wid-act > :not(.wid-runner) { display: none !important; }
#said { position: fixed; inset: auto 0 0; height: 84px; margin: 0; padding: 0 22px; background: #1b1f24;
  color: #fff; display: flex; align-items: center; font-size: 24px; line-height: 1.3; text-wrap: balance; }
"""
SHOW = """(selector) => document.querySelectorAll("body > section").forEach(
  (section) => section.classList.toggle("shown", section.querySelector(selector)))"""
SAY = "(text) => { document.getElementById('said').textContent = text; }"


def caption_of_each_frame(page: Page) -> Iterator[int]:
    """Operate the main page step by step. At each frame, yield the index of its caption in CAPTIONS."""
    page.evaluate(SHOW, ".wid-writer")
    view = page.locator(".wid-writer")
    yield START
    view.locator("textarea").press("Enter")
    page.wait_for_timeout(COMPUTED)
    n_kept = 0  # frames since the prompt is in the cache
    while not view.locator(".wid-acts").count():
        page.clock.run_for(FRAME)
        n_kept += VIEW["live"]["coming"] not in view.inner_text()
        yield DRIP if n_kept > SETTLED else ROWS if n_kept else PAUSE
    yield WRITTEN
    for button in (".wid-acts button", ".wid-guesses button"):
        view.locator(button).first.dispatch_event("click")
    page.wait_for_timeout(COMPUTED)
    while not view.locator(".wid-act .wid-sentence").count():
        for _ in range(RACE_PACE):
            page.clock.run_for(FRAME)
        yield RACE
    yield RACED
    page.evaluate(SHOW, ".wid-what_if")
    page.locator(".wid-what_if .wid-buttons button").dispatch_event("click")
    yield KEPT
    page.locator(".wid-what_if .wid-number").nth(1).fill("8")
    yield from STALE


class Frame(NamedTuple):
    """A frame of the film: the path of its picture, and the number of seconds for which it is shown."""

    path: Path
    seconds: float


def draw_frames(page: Page, folder: Path) -> list[Frame]:
    """Write a PNG of every frame to `folder`, and return the frames.

    The frames with the same caption share the display time of that caption equally.

    Raises:
        ValueError: a caption contains a number that does not appear in its frame.
    """
    page.add_style_tag(content=STYLE)
    page.evaluate("document.body.append(Object.assign(document.createElement('p'), { id: 'said' }))")
    drawn: list[int] = []
    for caption in caption_of_each_frame(page):
        page.evaluate(SAY, CAPTIONS[caption])
        page.clock.run_for(1)
        page.screenshot(path=folder / f"{len(drawn)}.png")
        drawn.append(caption)
        shown = page.locator("section.shown").inner_text()
        for number in re.findall(r"\d[\d,]*\b", CAPTIONS[caption]):
            if not re.search(rf"(?<![\d,]){number}(?![\d,])", shown):
                raise ValueError(
                    f"got {number} in {CAPTIONS[caption]!r}, expected a number in its frame: {shown!r}"
                )
    return [
        Frame(folder / f"{n}.png", caption_seconds(CAPTIONS[x]) / drawn.count(x)) for n, x in enumerate(drawn)
    ]


def main() -> None:
    """Make the film in both video formats and its poster, and print the paths of these files."""
    argument_parser(__doc__).parse_args()
    if (ffmpeg := shutil.which("ffmpeg")) is None:
        sys.exit("no ffmpeg here: `apt install ffmpeg`")
    with tempfile.TemporaryDirectory() as name, running_chromium() as browser:
        folder = Path(name)
        title, sections, _ = main_page(load_diary())
        shown = build_page(title, sections, separate_files=True, style=TABLE_STYLE)
        for file, text in (file_script(Live.file), ("index.html", shown)):
            (folder / file).write_text(text, encoding="utf-8")
        page = open_file_page(browser, folder / "index.html", WIDTH, HEIGHT, SCALE)
        page.locator(".wid-what_if").wait_for(state="attached")
        drawn = draw_frames(page, folder)
        held = "".join(f"file {path.name}\nduration {time:.4f}\n" for path, time in drawn)
        (folder / "frames.txt").write_text(f"{held}file {drawn[-1][0].name}\n")
        shutil.copy(drawn[0][0], POSTER)
        FOLDER.mkdir(parents=True, exist_ok=True)
        common = ["-v", "error", "-y", "-f", "concat", "-i", f"{folder}/frames.txt", *OUTPUT.split()]
        for path, codec in zip(FILMS, CODECS.values(), strict=True):
            subprocess.run([ffmpeg, *common, *codec.split(), str(path)], check=True)
    for path in (*FILMS, POSTER):
        print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
