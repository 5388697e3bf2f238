"""Draw the README's pictures with Chromium (see tests/requirements.txt).

python -m tools pictures                    # stepper.png, race.png and race.gif in notebooks/pictures/
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from helpers.recording.toy import record_toy
from helpers.stepper import Live, Stepper
from helpers.stepper.view import View
from tools.chromium import find_chromium
from tools.launch import ROOT, argument_parser

FOLDER = ROOT / "notebooks" / "pictures"
WIDTH = 760
FRAME, READ, REST = 80, 1200, 4000  # ms: per frame, to read the reply, at the end
RACE_PACE = 3  # the race is shown this many times faster than in the view
COMPUTED = 15_000  # milliseconds until the model has run; the page's clock is stopped meanwhile
COLOURS = 48
# Controls are hidden, and all frames have the same height.
PLAIN = """
.wid-writer { outline: none !important; border-radius: 0 !important; height: 436px; overflow: hidden; }
.wid-writer :is(.wid-controls, .wid-acts, .wid-own, .wid-sizes) { display: none !important; }
.wid-run .soft { display: none; }
.wid-act > :not(.wid-runner) { display: none; }
"""


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Start Chromium, and close it at the end of the `with` block.

    If there is no Chromium on this machine, the program exits with a message.
    """
    if (path := find_chromium()) is None:
        sys.exit("no Chromium here: install chromium, or run `python -m playwright install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def open_file_page(browser: Browser, path: Path, width: int, height: int, scale: float) -> Page:
    """Open an HTML file in a new page with a stopped clock, and return the page.

    Args:
        browser: the browser.
        path: the HTML file.
        width, height: width and height of the viewport, in CSS pixels.
        scale: device pixels per CSS pixel.
    """
    page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
    page.clock.install(time=0)
    page.goto(path.as_uri())
    page.clock.pause_at(60_000)
    return page


@contextmanager
def open_view(browser: Browser, view: View, width: int) -> Iterator[Locator]:
    """Open a page that contains only this view, and close it at the end of the `with` block.

    The block gets a locator of the view's HTML element.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        view.save_html(path)
        page = open_file_page(browser, path, width, 900, 2)
        yield page.locator(".wid-view")
        page.close()


def draw_live_view(browser: Browser) -> None:
    """Write race.gif and race.png, two pictures of the live view.

    race.gif is an animation of the reply, followed by the race of two runs, with and without the cache.
    race.png is a frame of the race.
    """
    frames: list[Image.Image] = []

    def draw(pace: int) -> None:
        for _ in range(pace):
            view.page.clock.run_for(FRAME)
        frames.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))

    with open_view(browser, Live(), WIDTH) as view:
        view.page.add_style_tag(content=PLAIN)
        view.locator("textarea").press("Enter")
        view.page.wait_for_timeout(COMPUTED)
        while not view.locator(".wid-acts").count():
            draw(1)
        frames += frames[-1:] * (READ // FRAME)
        for button in (".wid-acts button", ".wid-guesses button"):  # which the picture does not show
            view.locator(button).first.dispatch_event("click")
        view.page.wait_for_timeout(COMPUTED)
        n_written = len(frames)
        while not view.locator(".wid-act .wid-sentence").count():
            draw(RACE_PACE)
    frames[n_written + (len(frames) - n_written) // 3].save(FOLDER / "race.png", optimize=True)
    samples = [frames[2], frames[n_written - 1], frames[-1]]  # of the pause, the drip, the race
    sheet = Image.new("RGB", (frames[0].width, len(samples) * frames[0].height))
    for n, frame in enumerate(samples):
        sheet.paste(frame, (0, n * frame.height))
    palette = sheet.quantize(COLOURS)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    durations = [FRAME] * len(others) + [REST]
    first.save(FOLDER / "race.gif", save_all=True, append_images=others, duration=durations, loop=0)


def main() -> None:
    """Draw the README's three pictures, and print their paths."""
    argument_parser(__doc__).parse_args()
    with running_chromium() as browser:
        with open_view(browser, Stepper(record_toy()), 940) as view:
            view.screenshot(path=FOLDER / "stepper.png", omit_background=True)
        draw_live_view(browser)
    for name in ("stepper.png", "race.png", "race.gif"):
        print(f"{FOLDER / name}, {(FOLDER / name).stat().st_size / 1000:.0f} kB")
