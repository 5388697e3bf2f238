"""Check, without running the notebooks, that they are ready to be committed.

    python -m tools check                       # all notebooks
    python -m tools check notebooks/03_decode.ipynb

Each notebook must have been run from top to bottom, without errors and without output on stderr. It must
contain no widget state and no timings. Its badges and its first code cell must be current.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.launch import ROOT, argument_parser, bootstrap_source, imports_helpers, launch_links


def code_cells(book: NotebookNode) -> list[NotebookNode]:
    """Return a notebook's code cells, except those that are empty."""
    return [cell for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]


def output_errors(book: NotebookNode) -> Iterator[str]:
    """Yield one sentence for each stored output that is an error or was written to stderr.

    Errors are allowed in cells with the tag `raises-exception`.
    """
    for number, cell in enumerate(code_cells(book), 1):
        for output in cell.outputs:
            tags = cell.metadata.get("tags", [])
            if output.output_type == "error" and "raises-exception" not in tags:
                yield f"code cell {number}: {output.ename}: {output.evalue}"
            if output.output_type == "stream" and output.name == "stderr":
                yield f"code cell {number} wrote to stderr: {output.text.strip()[:200]}"


def reasons_not_to_commit(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one sentence for each reason not to commit the notebook at `path`.

    Args:
        path: the notebook.
        root: the root of the repository. The address and version in its pyproject.toml are those that the
            notebook's badges and first code cell must have.
    """
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = code_cells(book)
    if (counts := [cell.execution_count for cell in cells]) != list(range(1, len(cells) + 1)):
        yield f"not run from top to bottom in a fresh kernel: the execution counts are {counts}"
    if [cell for cell in book.cells if cell.cell_type == "code" and not cell.source.strip()]:
        yield "an empty code cell"
    kinds = [[output.output_type for output in cell.outputs] for cell in cells]
    if any(("stream", "stream") in itertools.pairwise(types) for types in kinds):
        yield "printed text in several pieces, as of a progress bar (GitHub shows a line for each)"
    yield from output_errors(book)
    shown = [output.get("data", {}) for cell in cells for output in cell.outputs]
    if any(len(data.get("image/png", "")) > 140_000 for data in shown):  # of base64
        yield "a picture of more than 105 kB"
    if "widgets" in book.metadata:
        yield "the state of widgets in its metadata"
    if [cell for cell in book.cells if "execution" in cell.metadata]:
        yield "timings in the metadata of its cells"
    if book.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "no kernelspec named python3 (JupyterLab would ask the reader for a kernel)"
    prose = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#+ .*", prose, re.MULTILINE)
    if repeated := {heading for heading in headings if headings.count(heading) > 1}:
        yield f"a heading that appears twice: {', '.join(sorted(repeated))}"
    if not cells:
        return  # a notebook without code: nothing to launch
    if cells[0].source != bootstrap_source(root):
        if any(imports_helpers(cell.source) for cell in cells):
            yield "its first code cell is not the one in tools/launch.py"
    elif not cells[0].metadata.get("jupyter", {}).get("source_hidden"):
        yield "its first code cell is not folded (in JupyterLab: View, Collapse Selected Code)"
    if launch_links(f"notebooks/{path.name}", root) not in prose:
        yield "its badges are missing, or not those in tools/launch.py"


def main() -> None:
    arguments = argument_parser(__doc__)
    arguments.add_argument("notebooks", nargs="*", type=Path, help="files (default: all in notebooks/)")
    paths = arguments.parse_args().notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    if messages := [f"{path.name}: {fault}" for path in paths for fault in reasons_not_to_commit(path)]:
        sys.exit("\n".join([*messages, "To run the notebooks again: python -m tools notebooks"]))
