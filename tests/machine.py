"""What this machine offers to the tests, and what happens when it offers too little."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import nbformat
import pytest

from tools.chromium import find_chromium as find_chromium

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Made here or there, part of no copy of the project; `.git` is a file in a second worktree.
MADE = re.compile(
    r"\.git|build|dist|node_modules|__pycache__|\.DS_Store|\.venv.*|.*\.egg-info|.*_cache"
    r"|\.(hypothesis|ipynb_checkpoints|jupyter)|solved\.txt|fresh"
)


def project_files() -> list[Path]:
    """Return the files that belong to the project, those not yet known to git among them."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder)
        folders[:] = [name for name in folders if not MADE.fullmatch(name)]
        found += [here / name for name in files if not MADE.fullmatch(name)]
    return sorted(found)


def prose_of(path: Path) -> str:
    """Return what a reader reads in a file: the Markdown of a notebook, all of a text."""
    if path.suffix == ".ipynb":
        book = nbformat.read(path, as_version=4)
        return "\n\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else ""


def lacking(reason: str) -> NoReturn:
    """Skip the test with this reason; under CI=true fail, so that no run passes by leaving it out."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (a failure, because CI=true)")
    pytest.skip(reason)


@functools.cache
def find_node() -> str | None:
    """Path of a node that reads TypeScript: the one in playwright's wheel."""
    if not (wheel := importlib.util.find_spec("playwright")):
        return None
    shipped = Path(str(wheel.origin)).parent / "driver" / ("node.exe" if os.name == "nt" else "node")
    return str(shipped) if shipped.exists() else None


@functools.cache
def pypi_answers() -> bool:
    """Whether pip finds a small package, wherever this machine's pip looks."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
    command += ["--quiet", "--retries=1", "--timeout=10", "iniconfig==2.0.0"]
    return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
