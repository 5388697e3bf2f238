"""Draw the README's pictures, with a Chromium (see tests/requirements.txt).

python .ci/make_picture.py                    # stepper.png, race.png and race.gif in .github/
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.recording.diary import load_diary  # noqa: E402
from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Race, Stepper  # noqa: E402
from helpers.stepper.view import View  # noqa: E402
from tests.machine import find_chromium  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

FOLDER = ROOT / ".github"
FRAME, REST = 80, 4000  # milliseconds: from frame to frame, and at the end before it begins again
START, SECONDS = 4.5, 12  # as the page's slow start: until the cached run is done, and then for a whole clock
COLOURS = 32
# In a picture there is nothing to press; what never appears in it needs no room.
PLAIN = """
.wid-race { border-radius: 0; }
.wid-race :is(.wid-buttons, .wid-segments, .wid-sizer) { display: none; }
.wid-race .wid-say { height: calc(3em + 16px); margin-bottom: 0; }
"""
GO = "(slider, t) => { slider.value = t; slider.dispatchEvent(new Event('input')); }"


@contextmanager
def shown(browser: Browser, view: View, width: int) -> Iterator[Locator]:
    """A view on a page of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        view.save_html(path)
        page = browser.new_page(viewport={"width": width, "height": 900}, device_scale_factor=2)
        page.goto(path.as_uri())
        yield page.locator(".wid-view")
        page.close()


def times(race: Race) -> list[float]:
    """Times of the frames, in positions: slowly until the run with the cache is done, then at speed 1."""
    end, clock = (sum(run.counted("positions")) for run in (race.cached, race.plain))
    n_slow = round(1000 * START / FRAME)
    n_rest = round(1000 * SECONDS * (1 - end / clock) / FRAME)
    slow = [end * n / n_slow for n in range(1, n_slow)]
    return [*slow, *(end + (clock - end) * n / n_rest for n in range(n_rest + 1))]


def draw_race(browser: Browser) -> None:
    """Draw the race as an animation, and as a picture a third of the way."""
    race = Race(load_diary())
    frames = []
    with shown(browser, race, 940) as view:
        view.page.add_style_tag(content=PLAIN)
        slider = view.locator("input[type=range]")
        slider.evaluate(GO, sum(race.plain.counted("positions")) / 3)
        palette = Image.open(io.BytesIO(view.screenshot(path=FOLDER / "race.png"))).convert("RGB")
        palette = palette.quantize(COLOURS)
        for t in times(race):
            slider.evaluate(GO, t)
            frames.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    lasts = [FRAME] * len(others) + [REST]
    first.save(FOLDER / "race.gif", save_all=True, append_images=others, duration=lasts, loop=0)


def main() -> None:
    """Draw the pictures and say where they are."""
    from playwright.sync_api import sync_playwright

    chromium = find_chromium()
    if chromium is None:
        sys.exit(
            "no Chromium here: install chromium or google-chrome, "
            "or run `python -m playwright install chromium`"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        with shown(browser, Stepper(record_toy()), 940) as view:
            view.screenshot(path=FOLDER / "stepper.png", omit_background=True)
        draw_race(browser)
        browser.close()
    for name in ("stepper.png", "race.png", "race.gif"):
        print(f"{FOLDER / name}, {(FOLDER / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
