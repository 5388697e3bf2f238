"""A page imports what an earlier page has shown, or pictures, checkers and recorded data, and says which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.machine import NOTEBOOKS

# What a page may import without showing it, by kind. A module stands for all that is in it.
KINDS = {
    "pictures, views, widgets and tables": "plots stepper explorers drawing.tables",
    "checkers": "chapters check",
    "recorded data, and what records the toy": "recording sampling.Sampling",
    "the trained model, its cache and the diaries": (
        "model.shipped model.cache.StaticCache model.evaluate corpus"
    ),
    "bug reports, rebuilt: the page shows the lines of each in a fold": "museum.EXHIBITS",
    "where a published model is, and its tokenizer": "model.published model.load.load_tokenizer",
    "sizes, cards, prices and options as published": "cost.models cost.dated cost.layers.GIB",
    "a server to be measured from outside, and a client of it": "serve.endpoint serve.client",
    "the toy's words and numbers": "toy.PROMPT toy.NUMBERS toy.VOCABULARY toy.EOS toy.LM_HEAD",
}
ALLOWED = {f"helpers.{name}" for names in KINDS.values() for name in names.split()}
# Where the subject is too long for a cell, a fold with this summary shows the lines that matter.
FOLDED = re.compile(r"<summary>The code of .*?</summary>(.*?)</details>", re.DOTALL)
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_of(stem: str) -> list[str]:
    """Return the sources of a notebook's code cells, without the first, which fetches the helpers."""
    cells = nbformat.read(next(path for path in NOTEBOOKS if path.stem == stem), as_version=4).cells
    shown = [c.source for c in cells if c.cell_type == "code" and "source_hidden" not in str(c.metadata)]
    return [re.sub(r"^(\s*)[%!].*", r"\1pass", source, flags=re.MULTILINE) for source in shown]


def folded_code_of(stem: str) -> list[str]:
    """Return the Python code of a notebook's folds that show the code of something imported."""
    cells = nbformat.read(next(path for path in NOTEBOOKS if path.stem == stem), as_version=4).cells
    folds = [fold for c in cells if c.cell_type == "markdown" for fold in FOLDED.findall(c.source)]
    return [code for fold in folds for code in FENCE.findall(fold)]


def imports(source: str) -> Iterator[tuple[str, str, int]]:
    """Yield (what is imported from helpers, its name on the page, line) of a cell."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "helpers":
            for name in node.names:
                yield f"{node.module}.{name.name}", name.asname or name.name, node.end_lineno or node.lineno
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "helpers":
                    yield name.name, name.asname or name.name, node.lineno


def defined(source: str) -> set[str]:
    """Return the functions, classes and variables that a cell defines at its top level."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def is_allowed(what: str) -> bool:
    parts = what.split(".")
    return any(".".join(parts[:n]) in ALLOWED for n in range(2, len(parts) + 1))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_imports_are_shown_earlier_or_of_a_kind(path: Path) -> None:
    before = [code for other in NOTEBOOKS if other.stem < path.stem for code in code_of(other.stem)]
    before += [code for other in NOTEBOOKS if other.stem <= path.stem for code in folded_code_of(other.stem)]
    earlier = {name for code in before for name in defined(code)}
    for source in code_of(path.stem):
        for what, name, line in imports(source):
            assert is_allowed(what) or name in earlier, f"{what}: show it on the page, or on an earlier one"
            assert "#" in source.splitlines()[line - 1], f"{what}: say in a comment what it is"


def test_one_page_needs_nothing_of_helpers() -> None:
    book = next(path for path in NOTEBOOKS if path.stem == "one_page").read_text(encoding="utf-8")
    assert not re.search(r"(from|import) helpers", book)


def test_hidden_code_is_found() -> None:
    assert [*imports("from helpers.serve.engine import Engine\nimport helpers.toy as toy\nimport numpy")] == [
        ("helpers.serve.engine.Engine", "Engine", 1),
        ("helpers.toy", "toy", 2),
    ]
    assert not is_allowed("helpers.serve.engine.Engine")
    assert not is_allowed("helpers.sampling.draw")
    assert is_allowed("helpers.plots.measured.curves")
    assert defined("def f(): pass\nclass A: pass\nx = 1") == {"f", "A", "x"}
