"""Where this machine has a Chromium, for pictures and tests."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def find_chromium() -> str | None:
    """Path of the first Chromium on this machine, playwright's own last; None where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    # In a process of its own: playwright leaves an event loop behind in the one that asks.
    ask = "from playwright.sync_api import sync_playwright as start\n"
    ask += "with start() as playwright: print(playwright.chromium.executable_path)"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    path = answer.stdout.strip()
    return path if path and Path(path).exists() else None
