"""Docstrings, errors and names of tests use the field's words; english.json has what to write instead."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine import ROOT

INSTEAD: dict[str, str] = json.loads((ROOT / "tests/english.json").read_text(encoding="utf-8"))
# Packages, modules and tests that are rewritten: add yours.
DONE = """
    helpers/cost/*.py helpers/drawing/*.py helpers/museum/*.py helpers/parallel/*.py helpers/recording/*.py
    helpers/serve/*.py helpers/stepper/*.py helpers/timing/*.py helpers/trace/*.py
    helpers/explorers/*.py helpers/plots/*.py tools/*.py tools/book/*.py tests/test_bills.py
    tests/test_config.py
    tests/test_cost*.py tests/test_dated.py tests/test_explorers.py tests/test_pages.py tests/test_plots*.py
    tests/test_repository.py tests/test_setup.py tests/test_sizes.py
    tests/test_step_time.py tests/test_tables.py tests/test_words.py
    helpers/constrained/*.py helpers/corpus.py helpers/model/*.py helpers/model/cache/*.py helpers/sampling.py
    helpers/tokenizer.py helpers/toy.py helpers/validate.py tests/test_adapter.py tests/test_constrained.py
    tests/test_contributions.py tests/test_corpus.py tests/test_latent.py tests/test_model_*.py
    tests/test_published.py tests/test_sampling.py tests/test_shipped.py
    tests/test_speculate.py tests/test_state.py tests/test_tokenizer.py tests/test_toy.py tests/test_train.py
    helpers/chapters/*.py helpers/check/*.py tests/test_check.py
""".split()
MAX_WORDS = 8  # of a test's name, without `test_`


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield docstrings, the text of errors, and names of tests as words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
        is_message = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "message"
        if isinstance(node, ast.Raise) or is_message:
            parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            yield " ".join(part for part in parts if isinstance(part, str))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name.replace("_", " ")


def complaints(source: str) -> list[str]:
    """Return what to change in a source."""
    found, tree = list[str](), ast.parse(source)
    for text in texts(tree):
        for pattern, instead in INSTEAD.items():
            if match := re.search(pattern, " ".join(re.sub("`[^`]*`", "", text).split()), re.IGNORECASE):
                found.append(f"{match[0]!r} in {text[:60]!r}: write {instead}")
    names = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    tests = (name.removeprefix("test_").split("_") for name in names if name.startswith("test_"))
    return found + [
        f"{' '.join(words)}: at most {MAX_WORDS} words" for words in tests if len(words) > MAX_WORDS
    ]


@pytest.mark.parametrize("pattern", DONE)
def test_docstrings_and_errors_use_the_fields_words(pattern: str) -> None:
    paths: list[Path] = [*ROOT.glob(pattern)]
    assert paths
    for path in paths:
        assert not complaints(path.read_text(encoding="utf-8")), path.name


def test_each_place_is_checked() -> None:
    long = "def test_a_b_c_d_e_f_g_h_i(): pass"
    for source in ('"""The row behind it."""', "raise ValueError(f'{n} tokens came in')", long):
        assert len(complaints(source)) == 1
    assert not complaints('"""There is no such row; see `behind`."""')
