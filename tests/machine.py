"""The files and programs on this machine that tests need, and how to skip a test if one is missing."""

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
    """Return the paths of all files that belong to the project, including files not yet added to git."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder)
        folders[:] = [name for name in folders if not MADE.fullmatch(name)]
        found += [here / name for name in files if not MADE.fullmatch(name)]
    return sorted(found)


def prose_of(path: Path) -> str:
    """Return the prose in a file: the Markdown cells of a notebook, or all of a Markdown file.

    For other files, "" is returned.
    """
    if path.suffix == ".ipynb":
        book = nbformat.read(path, as_version=4)
        return "\n\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else ""


def lacking(reason: str) -> NoReturn:
    """Skip the current test for this reason. If CI=true, fail instead, so that CI leaves out no test."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (a failure, because CI=true)")
    pytest.skip(reason)


@functools.cache
def find_node() -> str | None:
    """Return the path of the Node.js executable in playwright's wheel, which can run TypeScript, or None."""
    if not (wheel := importlib.util.find_spec("playwright")):
        return None
    shipped = Path(str(wheel.origin)).parent / "driver" / ("node.exe" if os.name == "nt" else "node")
    return str(shipped) if shipped.exists() else None


@functools.cache
def pypi_answers() -> bool:
    """Return whether pip can find a small package in the index that it is configured to use."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
    command += ["--quiet", "--retries=1", "--timeout=10", "iniconfig==2.0.0"]
    return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
