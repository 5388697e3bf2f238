"""Run the notebooks from top to bottom, each in a fresh kernel, and store their outputs.

    python -m tools notebooks                         # all notebooks
    python -m tools notebooks 03_decode 04            # those whose file names begin with 03_decode or 04

Everything that can change between two runs of the same code is removed: the state and the ids of widgets,
timings, and the version of Python. If a cell raises an exception or writes to stderr, the file is left
unchanged. If the data or the sentences of an interactive view have changed, its picture in
`helpers/stepper/stills/` is taken again with Chromium.
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

from tools.check import output_errors
from tools.launch import ROOT, argument_parser

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def execute_notebook(
    book: NotebookNode, folder: Path, env: Mapping[str, str] | None = None, keep_widgets: bool = False
) -> None:
    """Run a notebook's cells in a fresh kernel, and store the outputs in `book`.

    Args:
        book: the notebook.
        folder: the kernel's working directory.
        env: the kernel's environment variables; if None, those of this process.
        keep_widgets: whether to store the state of the widgets in the notebook's metadata.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell without the tag `raises-exception` raised.
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


def normalize_notebook(book: NotebookNode) -> None:
    """Remove from a notebook everything that can change between two runs of the same code.

    Timings and the notebook's metadata are removed, the ids of widgets are replaced by consecutive numbers,
    and consecutive stream outputs are merged.
    """
    book.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    numbers = itertools.count(1)
    CoalesceStreamsPreprocessor().preprocess(book, {})  # so that a progress bar is one line
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if view := output.get("data", {}).get(WIDGET_VIEW):
                view["model_id"] = f"{next(numbers):032x}"


def run_and_store(path: Path, retake_all: bool = False) -> list[str]:
    """Run a notebook, and write it to its file with the new outputs.

    If new stills of its views were taken, the notebook is run again, so that its outputs contain them.

    Args:
        path: the notebook.
        retake_all: whether to take the stills of all views again.

    Returns:
        Error messages. If there are any, the file was left unchanged.
    """
    from tools import stills  # not at the top: whoever imports this module may have no playwright

    book = nbformat.read(path, as_version=4)
    try:
        execute_notebook(book, path.parent, keep_widgets=True)
        if any(stills.view_inputs(book)) and stills.take_stills(book, retake_all):
            execute_notebook(book, path.parent)
    except CellExecutionError as error:
        return [strip_ansi(str(error))]
    except FileNotFoundError as error:
        return [str(error)]
    normalize_notebook(book)
    if errors := list(output_errors(book)):
        return errors
    nbformat.validate(book)
    nbformat.write(book, path)
    return []


def notebook_paths(beginnings: list[str]) -> list[Path]:
    """Return the paths of the notebooks whose file names begin with one of `beginnings`.

    If `beginnings` is empty, the paths of all notebooks are returned. If one of them matches no notebook, the
    program exits with a message.
    """
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    starts = [Path(name).name for name in beginnings]
    if unknown := [start for start in starts if not any(path.name.startswith(start) for path in paths)]:
        sys.exit(f"no notebook's name begins with {unknown[0]!r}; there are: {[path.stem for path in paths]}")
    return [path for path in paths if not starts or path.name.startswith(tuple(starts))]


def main() -> None:
    from tools import stills

    arguments = argument_parser(__doc__)
    arguments.add_argument("names", nargs="*", help="beginnings of file names (default: all)")
    arguments.add_argument("--anew", action="store_true", help="take the picture of each view again")
    chosen, failed = arguments.parse_args(), False
    for path in notebook_paths(chosen.names):
        start = time.monotonic()
        errors = run_and_store(path, chosen.anew)
        print(
            f"{path.name}: {time.monotonic() - start:.1f} s, {path.stat().st_size / 1000:.0f} kB", flush=True
        )
        for error in errors:
            print(f"  {error}; the file is unchanged", flush=True)
        failed = failed or bool(errors)
    stills.remove_unused_stills(nbformat.read(path, as_version=4) for path in notebook_paths([]))
    sys.exit(failed)
