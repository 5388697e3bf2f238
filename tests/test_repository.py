"""Committed files are consistent: notebooks, addresses, links, versions."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from conftest import LONGEST, LONGEST_FAST
from tests.machine import NOTEBOOKS, ROOT, prose_of
from tools.check import reasons_not_to_commit
from tools.launch import bootstrap_source, launch_links
from tools.sizes import LOOKED_UP
from tools.stamp import stale_files, stamped_files, write_stamps


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_fit_to_commit(notebook: Path) -> None:
    assert list(reasons_not_to_commit(notebook)) == []


Spoil = Callable[[nbformat.NotebookNode], object]


def with_outputs(*outputs: nbformat.NotebookNode) -> Spoil:
    return lambda book: book.cells[1].update(outputs=list(outputs))


output = nbformat.v4.new_output
STATE: dict[str, dict] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
SPOILT: dict[str, Spoil] = {
    "count": lambda book: book.cells[1].update(execution_count=None),
    "state": lambda book: book.metadata.update(widgets=STATE),
    "stderr": with_outputs(output("stream", name="stderr", text="careful")),
    "pieces": with_outputs(output("stream", text="1 of 2"), output("stream", text="2 of 2")),
    "large": with_outputs(output("display_data", {"image/png": "A" * 140_001})),
    "error": with_outputs(output("error", ename="E", evalue="", traceback=[])),
    "timing": lambda book: book.cells[1].metadata.update(execution={"iopub.execute_input": "2026"}),
    "bootstrap": lambda book: book.cells[1].update(source=bootstrap_source() + "  # changed"),
    "folded": lambda book: book.cells[1].metadata.pop("jupyter"),
    "badges": lambda book: book.cells[0].update(source="# No badges"),
    "kernel": lambda book: book.metadata.pop("kernelspec"),
    "twice": lambda book: book.cells.append(nbformat.v4.new_markdown_cell("# Made")),
}


def good_notebook() -> nbformat.NotebookNode:
    """Return a notebook without a fault, to be saved as made.ipynb."""
    cells = [
        nbformat.v4.new_markdown_cell("# Made\n\n" + launch_links("notebooks/made.ipynb")),
        nbformat.v4.new_code_cell(
            bootstrap_source(), execution_count=1, metadata={"jupyter": {"source_hidden": True}}
        ),
        nbformat.v4.new_code_cell("1 + 1", execution_count=2),
    ]
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})


@pytest.mark.parametrize("spoilt", SPOILT)
def test_unfit_notebooks_are_found(tmp_path: Path, spoilt: str) -> None:
    path, book = tmp_path / "made.ipynb", good_notebook()
    nbformat.write(book, path)
    assert list(reasons_not_to_commit(path)) == []
    SPOILT[spoilt](book)
    nbformat.write(book, path)
    assert len(list(reasons_not_to_commit(path))) == 1


def test_stamps_are_current() -> None:
    assert list(stale_files()) == []


def test_stamping_changes_every_address(tmp_path: Path) -> None:
    for path in set(stamped_files(ROOT)) - set(NOTEBOOKS[2:]):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    write_stamps("ann-b/another.name", tmp_path)
    assert list(stale_files(tmp_path)) == []
    old = re.compile(r"OWNER[./]|/watch-it-decode\b")
    for path in stamped_files(tmp_path):
        assert not old.search(path.read_text(encoding="utf-8")), path.name
    about = tmp_path / "pyproject.toml"
    about.write_text(about.read_text(encoding="utf-8").replace('version = "', 'version = "1', 1))
    assert len(list(stale_files(tmp_path))) == 4, "two notebooks, README.md and CITATION.cff"
    write_stamps("cy/watch-it-decode", tmp_path)
    assert list(stale_files(tmp_path)) == []


LINK = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")


def dead_links(path: Path) -> Iterator[str]:
    """Yield the relative links of a text or notebook that lead to no file: JupyterLab opens no folder."""
    for groups in LINK.findall(prose_of(path)):
        target = (groups[0] or groups[1]).split("#")[0]
        if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).is_file():
            yield target


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *NOTEBOOKS], ids=lambda p: p.stem
)
def test_relative_links_exist(path: Path) -> None:
    assert list(dead_links(path)) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    path = tmp_path / "text.md"
    path.write_text("[here](text.md#part), [there](gone.md), [up](..) and [far](https://arxiv.org/abs/1)")
    assert list(dead_links(path)) == ["gone.md", ".."]


HOME, *PAGES = [path for path in NOTEBOOKS if path.name[:2].isdigit()]


def ways_out(path: Path) -> list[str]:
    """Return the notebooks to which the last cell of a notebook links."""
    return re.findall(r"\]\((\w+\.ipynb)\)", nbformat.read(path, as_version=4).cells[-1].source)


def test_last_cells_link_next_previous_and_first() -> None:
    for before, page in itertools.pairwise([HOME, *PAGES]):
        assert page.name in ways_out(before)
        assert before.name in ways_out(page)
    for page in NOTEBOOKS:
        assert page.stem in (*LOOKED_UP, HOME.stem) or HOME.name in ways_out(page)


def pins(path: Path) -> dict[str, str]:
    """Return the versions of a requirements file, each of them exact."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-")):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()  # type: ignore[union-attr]
            found[name] = version
    return found


def ranges(*extras: str) -> list[Requirement]:
    """Return the requirements in pyproject.toml, with those of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [Requirement(text) for text in sum((optional[name] for name in extras), project["dependencies"])]


def imported(path: Path) -> set[str]:
    """Return the packages that a module imports, at its top or later."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"helpers"}


def test_imports_of_helpers_match_pyproject() -> None:
    found = {name.lower() for path in (ROOT / "helpers").rglob("*.py") for name in imported(path)}
    come_with_others = {"traitlets", "pil", "llvmlite"}  # ipywidgets, matplotlib, numba
    assert found - come_with_others == {wanted.name.lower() for wanted in ranges("model")}


def test_pins_are_within_the_ranges() -> None:
    exact = pins(ROOT / "requirements.txt")
    assert pins(ROOT / "tests/requirements.txt")
    assert all(exact[wanted.name] in wanted.specifier for wanted in ranges("model"))


def test_lowest_versions_match_pyproject() -> None:
    lines = [line for line in (ROOT / "tests/lowest.txt").read_text().splitlines() if line[0] != "#"]
    lowest = {}
    for pin in map(Requirement, lines):
        if pin.marker is None or pin.marker.evaluate({"python_version": "3.11"}):
            lowest[pin.name] = Version(str(pin.specifier).removeprefix("=="))
    assert lowest == {wanted.name: Version(str(wanted.specifier).removeprefix(">=")) for wanted in ranges()}


def test_tests_listed_as_slow_exist() -> None:
    assert [name for name in LONGEST + LONGEST_FAST if not (ROOT / name).exists()] == []
