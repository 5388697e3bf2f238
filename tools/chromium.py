"""Find the Chromium browser on this machine that draws pictures and runs the browser tests."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome executable, or None if there is none on this machine.

    Playwright's Chromium is used only if no other is on the PATH.
    """
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    # In a separate process, because playwright would leave an event loop in this one.
    code = "from playwright.sync_api import sync_playwright as start\n"
    code += "with start() as playwright: print(playwright.chromium.executable_path)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    path = result.stdout.strip()
    return path if path and Path(path).exists() else None
