"""Find a Chromium browser on this machine, for pictures and tests."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def find_chromium() -> str | None:
    """Return the path of a Chromium, or None. Playwright's Chromium is used if there is no other."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    # In a separate process, because playwright would leave an event loop in this one.
    code = "from playwright.sync_api import sync_playwright as start\n"
    code += "with start() as playwright: print(playwright.chromium.executable_path)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    path = result.stdout.strip()
    return path if path and Path(path).exists() else None
