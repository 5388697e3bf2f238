"""Run the notebooks from top to bottom, each in a fresh kernel, and write their outputs in place.

    python -m tools notebooks                         # all of them
    python -m tools notebooks 03_decode 04            # by the beginning of their names

What depends on the run and not on the code is left out (state and ids of widgets, timings, the version of
Python), so that a second run changes nothing. A notebook that raises or writes to stderr is not written.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert.filters import strip_ansi
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat import NotebookNode

from tools.check import bad_outputs
from tools.launch import ROOT, parser

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def execute(
    book: NotebookNode, folder: Path, env: Mapping[str, str] | None = None, keep_widgets: bool = False
) -> None:
    """Run the notebook's cells in a fresh kernel that starts in `folder`; its outputs change in place.

    What its widgets hold goes into the notebook's metadata if it is to be kept.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised and is not tagged `raises-exception`.
    """
    client = NotebookClient(
        book,
        timeout=300,
        startup_timeout=120,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=keep_widgets,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=dict(os.environ if env is None else env))


def settle(book: NotebookNode) -> None:
    """Leave out what differs from run to run."""
    book.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    numbers = itertools.count(1)
    CoalesceStreamsPreprocessor().preprocess(book, {})  # else a progress bar is a line for each second
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if view := output.get("data", {}).get(WIDGET_VIEW):
                view["model_id"] = f"{next(numbers):032x}"


def run(path: Path) -> list[str]:
    """Run one notebook and write it, or leave the file alone and return what went wrong."""
    book = nbformat.read(path, as_version=4)
    try:
        execute(book, path.parent)
    except CellExecutionError as error:
        return [strip_ansi(str(error))]
    settle(book)
    if found := list(bad_outputs(book)):
        return found
    nbformat.validate(book)
    nbformat.write(book, path)
    return []


def pick(names: list[str]) -> list[Path]:
    """Return the notebooks whose file names begin with one of the names; all for no name."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    starts = [Path(name).name for name in names]
    if unknown := [start for start in starts if not any(path.name.startswith(start) for path in paths)]:
        sys.exit(f"no notebook's name begins with {unknown[0]!r}; there are: {[path.stem for path in paths]}")
    return [path for path in paths if not starts or path.name.startswith(tuple(starts))]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", help="beginnings of file names (default: all)")
    failed = False
    for path in pick(arguments.parse_args().names):
        start = time.monotonic()
        found = run(path)
        print(
            f"{path.name}: {time.monotonic() - start:.1f} s, {path.stat().st_size / 1000:.0f} kB", flush=True
        )
        for fault in found:
            print(f"  {fault}; the file is left as it was", flush=True)
        failed = failed or bool(found)
    sys.exit(failed)
