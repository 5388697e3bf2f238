"""Draw the README's pictures, with a Chromium (see tests/requirements.txt).

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
from tools.launch import ROOT, parser

FOLDER = ROOT / "notebooks" / "pictures"
WIDTH = 760
FRAME, READ, REST = 80, 1200, 4000  # ms: from frame to frame, to read what was written, at the end
RACE_PACE = 3  # so many times faster than the view is the race shown
COMPUTED = 15_000  # milliseconds after which the model has run: the page's clock stands still meanwhile
COLOURS = 48
# In a picture there is nothing to press, and every frame is as high as the highest.
PLAIN = """
.wid-writer { outline: none !important; border-radius: 0 !important; height: 436px; overflow: hidden; }
.wid-writer :is(.wid-controls, .wid-acts, .wid-own, .wid-sizes) { display: none !important; }
.wid-run .soft { display: none; }
.wid-act > :not(.wid-runner) { display: none; }
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium; without one the command ends."""
    if (path := find_chromium()) is None:
        sys.exit("no Chromium here: install chromium, or run `python -m playwright install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def opened(browser: Browser, path: Path, width: int, height: int, scale: float) -> Page:
    """A file as a page whose clock stands still."""
    page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
    page.clock.install(time=0)
    page.goto(path.as_uri())
    page.clock.pause_at(60_000)
    return page


@contextmanager
def shown(browser: Browser, view: View, width: int) -> Iterator[Locator]:
    """A view on a page of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        view.save_html(path)
        page = opened(browser, path, width, 900, 2)
        yield page.locator(".wid-view")
        page.close()


def draw_live(browser: Browser) -> None:
    """Draw the live view as it writes and then races: an animation, and a picture a third of the way."""
    frames: list[Image.Image] = []

    def draw(pace: int) -> None:
        for _ in range(pace):
            view.page.clock.run_for(FRAME)
        frames.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))

    with shown(browser, Live(), WIDTH) as view:
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
    shades = [frames[2], frames[n_written - 1], frames[-1]]  # of the pause, the drip, the race
    sheet = Image.new("RGB", (frames[0].width, len(shades) * frames[0].height))
    for n, frame in enumerate(shades):
        sheet.paste(frame, (0, n * frame.height))
    palette = sheet.quantize(COLOURS)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    lasts = [FRAME] * len(others) + [REST]
    first.save(FOLDER / "race.gif", save_all=True, append_images=others, duration=lasts, loop=0)


def main() -> None:
    """Draw the pictures and say where they are."""
    parser(__doc__).parse_args()
    with chromium() as browser:
        with shown(browser, Stepper(record_toy()), 940) as view:
            view.screenshot(path=FOLDER / "stepper.png", omit_background=True)
        draw_live(browser)
    for name in ("stepper.png", "race.png", "race.gif"):
        print(f"{FOLDER / name}, {(FOLDER / name).stat().st_size / 1000:.0f} kB")
