"""The rooms of the house: who may import whom, and what no file may say."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import page

from tests.machine import ROOT, project_files, prose_of

# What each room may import beyond the standard library and its own files. `torch` stands in `model` alone,
# and in the exercise checkers of Part II.
ROOMS = {
    "__init__": set[str](),
    "arguments": set[str](),
    "trace": {"numpy"},
    "sampling": {"numpy", "helpers.arguments"},
    "tables": set[str](),
    "toy": {"numpy", "helpers.arguments", "helpers.trace", "helpers.sampling"},
    "cost": {"helpers.arguments"},
    "measure": {"numpy"},
    "check": {"numpy", "helpers.toy", "helpers.trace", "helpers.sampling", "helpers.cost"},
    "check.part2": {"numpy", "helpers.toy", "helpers.trace", "helpers.sampling", "helpers.cost"}
    | {"torch", "helpers.model"},
    "plots": {"IPython", "PIL", "matplotlib", "numpy", "helpers.trace", "helpers.cost"},
    "outputs": {"IPython", "ipywidgets"},
    "stepper": {"anywidget", "traitlets", "IPython", "numpy", "helpers.trace", "helpers.outputs"},
    "explorers": {"anywidget", "ipywidgets", "traitlets", "numpy", "helpers.outputs", "helpers.plots"}
    | {"helpers.toy", "helpers.sampling", "helpers.cost", "helpers.tables"},
    "corpus": set[str](),
    "tokenizer": {"tokenizers"},
    "weights": set[str](),
    "model": {"torch", "numpy", "safetensors", "huggingface_hub", "tqdm"}
    | {"helpers.arguments", "helpers.sampling", "helpers.corpus", "helpers.tokenizer"},
    "watch": {"torch", "numpy", "helpers.arguments", "helpers.model", "helpers.trace", "helpers.sampling"}
    | {"helpers.tokenizer"},
}
PART_II = ("tokenizer", "model", "watch", "check.part2")


def room_of(module: str) -> str | None:
    """Return the room that holds this module (its dotted name below `helpers`), the innermost that fits."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), None)


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Yield what the code imports, wherever it does so, with relative names made absolute."""
    package = ["helpers", *module.split(".")] if is_package else ["helpers", *module.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ([f"helpers.{alias.name}" for alias in node.names] if name == "helpers" else [name])


def module_of(path: Path, helpers: Path) -> str:
    """Return the dotted name of a file below `helpers`."""
    relative = path.relative_to(helpers).with_suffix("")
    is_package = relative.name == "__init__" and len(relative.parts) > 1
    return ".".join(relative.parts[:-1] if is_package else relative.parts)


def wrong_imports(path: Path, helpers: Path) -> list[str]:
    """Name the imports of one file that its room does not allow."""
    module = module_of(path, helpers)
    room = room_of(module)
    if room is None:
        return [f"{module} is no room of the house: give it a line in ROOMS"]
    allowed = ROOMS[room] | {f"helpers.{room.split('.')[0]}"}
    wrong = []
    for name in imported(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py"):
        top = name.split(".")[0]
        fits = any(name == one or name.startswith(one + ".") for one in allowed)
        if not (fits or top in sys.stdlib_module_names):
            wrong.append(f"{module} imports {name}, which {room} may not")
    return wrong


def test_imports_go_in_one_direction() -> None:
    helpers = ROOT / "helpers"
    files = sorted(helpers.rglob("*.py"))
    assert len(files) > 1
    assert [fault for path in files for fault in wrong_imports(path, helpers)] == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("toy.py", "from helpers.stepper import Stepper"),
        ("toy.py", "def f():\n    import torch"),
        ("trace.py", "from helpers import toy"),
        ("stepper/__init__.py", "from ..toy import record"),
        ("check/part1.py", "import torch.nn"),
        ("model/cache.py", "from helpers.trace import Trace"),
        ("__init__.py", "import numpy"),
        ("attic.py", ""),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    assert len(wrong_imports(path, tmp_path)) == 1


def test_right_imports_pass(tmp_path: Path) -> None:
    (tmp_path / "check").mkdir()
    path = tmp_path / "check" / "part2.py"
    path.write_text("import torch\nfrom helpers.model.cache import KVCache\nfrom . import part1\n")
    assert wrong_imports(path, tmp_path) == []


def functions() -> Iterator[tuple[int, str]]:
    """Lines of each function of the package, its docstring among them, and where it stands."""
    for path in (ROOT / "helpers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}: {node.name}"  # type: ignore[operator]


def test_functions_are_short() -> None:
    lines = list(functions())
    assert [where for n, where in lines if n > 50] == []
    assert statistics.median(n for n, _ in lines) < 10


def test_part_one_does_without_torch() -> None:
    helpers = ROOT / "helpers"
    names = {module_of(path, helpers) for path in helpers.rglob("*.py")}
    part_one = sorted(f"helpers.{name}" for name in names if not name.startswith(PART_II))
    code = f"import sys, {', '.join(part_one)}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "torch is loaded"


HYPE = re.compile(
    r"\b(crucial|powerful|delve|dive|unlock\w*|seamless\w*|magic(al)?|simply|game.chang\w+|leverag\w+|robust"
    r"|intricate|fascinating|let's)\b",
    re.IGNORECASE,
)
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]")
# A folder that is on one machine and on no other.
ONE_MACHINE = re.compile(r"(?<![\w.~/:*-])/(?:home|root|tmp|opt|work|Users|mnt)/\w")
ADDRESS = re.compile(r"https?://([\w-]+(?:\.[\w-]+)+)")
KNOWN_HOSTS = {
    "github.com",
    "ourarash.github.io",
    "someone.github.io",  # a stranger's, in a test of stamping
    "mybinder.org",
    "colab.research.google.com",
    "download.pytorch.org",
    "arxiv.org",
    "machinelearningmastery.com",
    "www.w3.org",
    "127.0.0.1",
}


def known_hosts() -> set[str]:
    """Return the hosts that an address in the project may have, our own page's among them."""
    return KNOWN_HOSTS | set(ADDRESS.findall(page()))


def forbidden(path: Path) -> Iterator[str]:
    """Name what should not stand in this file."""
    text, prose = path.read_text(encoding="utf-8"), prose_of(path)
    yield from (f"a word that sells: {word.group()}" for word in HYPE.finditer(prose))
    yield from (f"an emoji: {sign.group()!r}" for sign in EMOJI.finditer(prose))
    yield from (f"a place on one machine: {place.group()}" for place in ONE_MACHINE.finditer(text))
    yield from (f"an unknown host: {host}" for host in sorted(set(ADDRESS.findall(text)) - known_hosts()))


def test_no_file_says_what_it_should_not() -> None:
    texts = [path for path in project_files() if path.suffix not in {".png", ".jpg", ".safetensors"}]
    assert len(texts) > 20
    here = Path(__file__)
    found = [f"{p.relative_to(ROOT)}: {fault}" for p in texts if p != here for fault in forbidden(p)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "This is a powerful idea.",
        "See \U0001f680",
        "open('/home/ann/x')",
        "http://packages.internal.net/simple",
    ],
)
def test_forbidden_text_is_found(tmp_path: Path, text: str) -> None:
    path = tmp_path / "text.md"
    path.write_text(text, encoding="utf-8")
    assert len(list(forbidden(path))) == 1
