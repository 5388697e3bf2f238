"""Draw the README's picture of the stepper, with a Chromium (see tests/requirements.txt).

python .ci/make_picture.py                    # .github/stepper.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Stepper  # noqa: E402
from tests.machine import find_chromium  # noqa: E402

PICTURE = ROOT / ".github" / "stepper.png"


def draw(chromium: str, path: Path) -> None:
    """Save the stepper at prefill as a page, open it, and take the picture."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "stepper.html"
        Stepper(record_toy()).save_html(page_file)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 940, "height": 900}, device_scale_factor=2)
        page.goto(page_file.as_uri())
        page.locator(".wid-stepper").screenshot(path=path, omit_background=True)
        browser.close()


def main() -> None:
    """Draw the picture and say where it is."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit(
            "no Chromium here: install chromium or google-chrome, "
            "or run `python -m playwright install chromium`"
        )
    draw(chromium, PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
