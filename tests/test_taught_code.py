"""Code that a notebook teaches is the code that later notebooks import: the two cannot drift apart."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import toy
from tests.machine import NOTEBOOKS

# What each notebook must define: in a cell of its own, or as the solution of an exercise.
TAUGHT = {
    "01_four_heads": ["key", "head", "four_heads"],
    "02_prefill": ["lm_head"],
    "03_decode": [],
    "00_start_here": [],
    "06_learned_heads": ["logit_contributions", "rotate"],
    "07_transformer": "Attention SwiGLU Block".split(),
    "08_trained_here": ["next_token_loss", "training_step"],
    "12_floor": ["step_time"],
    "14_forget": ["quantize"],
    "16_serving": "Request Scheduler serve seconds traffic waits".split(),
    "17_pages": ["bill"],
    "18_speculation": ["accept", "accept_or_resample"],
    "24_valid": ["endings_after", "generate_constrained"],
}
MODEL = ("model.attention", "model.transformer", "model.train", "model.contributions")
ROOMS = {
    "0": ("toy", "sampling"),
    **dict.fromkeys(["08", "09", "1", "A"], MODEL),
    "05": ("chapters.n05_attend",),
    "06": (*MODEL, "chapters.n06"),
    "07": (*MODEL, "chapters.n07"),
    "A2": ("museum.engine",),
    "12": ("cost.step",),
    "14": (*MODEL, "model.cache.quantized"),
    "16": ("serve.taught",),
    "17": ("chapters.n17",),
    "18": ("sampling",),
    "20": (),
    "21": (),
    "22": ("museum.engine",),
    "23": (),
    "24": ("constrained.grammar", "constrained.decoding"),
    "25": (),
    "one": (),
}  # by the beginning of a notebook's name, the longest that fits
Definition = ast.FunctionDef | ast.ClassDef
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Bare(ast.NodeTransformer):
    """Takes out what is for the reader of one place or the other: docstrings, annotations, guards."""

    def visit_body(self, node: Any) -> Any:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.visit_body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self.visit_body(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        """The package's guards against wrong input, `check_…(…)`, are no part of what is taught."""
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        return None if called.removeprefix("self.").startswith("check_") else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return node.value and ast.Assign([node.target], node.value, lineno=0)


def bare(code: str | Definition) -> str:
    """The syntax tree of one definition as text, without docstrings and annotations."""
    node = ast.parse(code.strip()).body[0] if isinstance(code, str) else code
    return ast.dump(Bare().visit(ast.parse(ast.unparse(node)).body[0]), indent=1)


def definitions(source: str) -> dict[str, Definition]:
    """Functions and classes at the top of a cell; its magics and shell lines are none."""
    plain = "\n".join("pass" if re.match(r"\s*[%!]", line) else line for line in source.splitlines())
    return {node.name: node for node in ast.parse(plain).body if isinstance(node, Definition)}


def of_cell(cell: dict[str, Any]) -> dict[str, Definition]:
    """What a cell teaches: its definitions, or its fences'; stubs and naive forms are not."""
    tags, source = cell["metadata"].get("tags", []), "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return {name: node for code in FENCE.findall(source) for name, node in definitions(code).items()}
    left_out = any(tag.startswith("exercise-") or tag == "not-helpers" for tag in tags)
    return {} if left_out else definitions(source)


def is_solution(cell: dict[str, Any]) -> bool:
    return any(tag.startswith("solution-") for tag in cell["metadata"].get("tags", []))


def taught(notebook: dict[str, Any], stem: str = "01_four_heads") -> list[tuple[str, Definition]]:
    """Every definition of a notebook that a room of `helpers` has by the same name.

    A solution counts where that is how the notebook teaches it.
    """
    found = [(cell, *pair) for cell in notebook["cells"] for pair in of_cell(cell).items()]
    return [
        (name, node)
        for cell, name, node in found
        if room_of(name, stem) and (name in TAUGHT.get(stem, []) or not is_solution(cell))
    ]


def room_of(name: str, stem: str) -> ModuleType | None:
    """The module that defines it (not one that only imports it)."""
    start = max((start for start in ROOMS if stem.startswith(start)), key=len)
    if any(room.startswith("model.") for room in ROOMS[start]):
        pytest.importorskip("torch", reason="Part II needs PyTorch")
    for room in map(importlib.import_module, (f"helpers.{room}" for room in ROOMS[start])):
        if getattr(getattr(room, name, None), "__module__", None) == room.__name__:
            return room
    return None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_teaches_is_what_helpers_has(path: Path) -> None:
    defined = taught(json.loads(path.read_text(encoding="utf-8")), path.stem)
    for name, node in defined:
        room = room_of(name, path.stem)
        assert bare(node) == bare(inspect.getsource(getattr(room, name))), f"another {name} than {room}"
    assert {*TAUGHT.get(path.stem, [])} <= {name for name, _ in defined}


def test_every_notebook_that_teaches_is_there() -> None:
    assert {*TAUGHT} <= {path.stem for path in NOTEBOOKS}


HELPERS_FORM = '''
def lm_head(contexts: np.ndarray) -> np.ndarray:
    """Turn contexts into logits."""
    return contexts @ LM_HEAD.T
'''
FOUR = "\ndef four_heads(visible):\n    return visible\n"


def cell(source: str, *tags: str, kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {"tags": list(tags)}, "source": source}


def test_docstrings_and_annotations_do_not_matter_and_all_else_does() -> None:
    same = "def lm_head(contexts):  # (T, H)\n    return contexts @ LM_HEAD.T"
    other = "def lm_head(contexts):\n    return LM_HEAD @ contexts"
    default = "def lm_head(contexts=None):\n    return contexts @ LM_HEAD.T"
    assert bare(same) == bare(HELPERS_FORM) == bare(inspect.getsource(toy.lm_head))
    assert bare(other) != bare(HELPERS_FORM)
    assert bare(default) != bare(HELPERS_FORM)
    assert bare("def f(n):\n    check_whole('n', n)\n    return n") == bare("def f(n):\n    return n")
    assert bare("def f(n):\n    self.check_rows(n)\n    return n") == bare("def f(n):\n    return n")
    assert bare("def f(n):\n    self.append(n)\n    return n") != bare("def f(n):\n    return n")
    assert bare("class A(B):\n    x: int = 1") == bare("class A(B):\n    'doc'\n    x = 1")
    assert bare("class A:\n    x = 1") != bare("class A(B):\n    x = 1")


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (cell(HELPERS_FORM), ["lm_head"]),
        (cell(HELPERS_FORM, "exercise-lm_head"), []),
        (cell(HELPERS_FORM, "not-helpers"), []),
        (cell(HELPERS_FORM, kind="markdown"), []),
        (cell(f"<details>\n\n```python{FOUR}```\n", "solution-four_heads", kind="markdown"), ["four_heads"]),
        (cell(f"<details>\n\n```python{HELPERS_FORM}```\n", "solution-lm_head", kind="markdown"), []),
        (cell("def greedy(): pass"), ["greedy"]),  # of sampling, though toy imports it
    ],
)
def test_which_definitions_count(one: dict[str, Any], found: list[str]) -> None:
    assert [name for name, _ in taught({"cells": [one]})] == found
