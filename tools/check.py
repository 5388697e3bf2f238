"""Check that the notebooks are fit to commit, without running them.

    python -m tools check                       # all of them
    python -m tools check notebooks/03_decode.ipynb

Run from top to bottom, nothing on stderr, no state of widgets, no timings, current launch texts.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.launch import ROOT, badges, bootstrap, parser


def code_cells(book: NotebookNode) -> list[NotebookNode]:
    """Return the code cells that hold code."""
    return [cell for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]


def bad_outputs(book: NotebookNode) -> Iterator[str]:
    """Name each error output and each output on stderr, unless the cell is tagged as raising."""
    for number, cell in enumerate(code_cells(book), 1):
        for output in cell.outputs:
            tags = cell.metadata.get("tags", [])
            if output.output_type == "error" and "raises-exception" not in tags:
                yield f"code cell {number}: {output.ename}: {output.evalue}"
            if output.output_type == "stream" and output.name == "stderr":
                yield f"code cell {number} wrote to stderr: {output.text.strip()[:200]}"


def faults(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Name everything that keeps the notebook from being committed."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = code_cells(book)
    if (counts := [cell.execution_count for cell in cells]) != list(range(1, len(cells) + 1)):
        yield f"not run from top to bottom in a fresh kernel: the execution counts are {counts}"
    if [cell for cell in book.cells if cell.cell_type == "code" and not cell.source.strip()]:
        yield "an empty code cell"
    kinds = [[output.output_type for output in cell.outputs] for cell in cells]
    if any(("stream", "stream") in itertools.pairwise(each) for each in kinds):
        yield "printed text in several pieces, as of a progress bar (GitHub shows a line for each)"
    yield from bad_outputs(book)
    shown = [output.get("data", {}) for cell in cells for output in cell.outputs]
    if any(len(data.get("image/png", "")) > 80_000 for data in shown):  # of base64
        yield "a picture of more than 60 kB"
    if "widgets" in book.metadata:
        yield "the state of widgets in its metadata"
    if [cell for cell in book.cells if "execution" in cell.metadata]:
        yield "timings in the metadata of its cells"
    if book.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "no kernelspec named python3 (JupyterLab would ask the reader for a kernel)"
    prose = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#+ .*", prose, re.MULTILINE)
    if twice := {one for one in headings if headings.count(one) > 1}:
        yield f"a heading that stands twice: {', '.join(sorted(twice))}"
    if not cells:
        return  # a page to read: nothing to launch
    if cells[0].source != bootstrap(root):
        yield "its first code cell is not the one that tools/launch.py writes"
    elif not cells[0].metadata.get("jupyter", {}).get("source_hidden"):
        yield "its first code cell is not folded (in JupyterLab: View, Collapse Selected Code)"
    if badges(f"notebooks/{path.name}", root) not in prose:
        yield "no badges, or not those that tools/launch.py writes"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("notebooks", nargs="*", type=Path, help="files (default: all in notebooks/)")
    paths = arguments.parse_args().notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    if found := [f"{path.name}: {fault}" for path in paths for fault in faults(path)]:
        sys.exit("\n".join([*found, "To run the notebooks again: python -m tools notebooks"]))
