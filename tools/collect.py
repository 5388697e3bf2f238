"""Who solved what: the exercises of a folder of pupils' notebooks, as CSV.

    python -m tools collect homework > results.csv
    python -m tools collect homework --seconds 60     # for a slow machine; 30 without it

This runs the pupils' code, as you and on this machine: look at it first, or run it where nothing can be lost.
A pupil is a folder (homework/ann/04_kv_cache.ipynb) or a file (homework/ben_04.ipynb). A line is a pupil, a
column an exercise: `solved`, `not yet`, `error` (no Python, no end in time, or an end of Python), or nothing
where no such notebook was handed in; of several copies the best counts. For an exercise only the cells run
that it needs, in a fresh kernel and an empty folder, and then its own check, not the pupil's copy of it.
`noted` is what only the pupil's `solved.txt` says, the file that the checks write beside the notebooks.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from helpers.check.reader import SOLVED
from tools.exercises import asked
from tools.launch import ROOT, parser

CHECKER = re.compile(r"^from helpers\.(?:check|chapters) import (\w+) as check$", re.MULTILINE)
BEST = ("", "error", "not yet", "noted", "solved")  # the last counts most
STATES = {"Right": "solved", "Not right yet": "not yet", "Not solved yet": "not yet"}


def sources(path: Path) -> list[str]:
    """The code cells of a notebook."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def checker(cells: Sequence[str]) -> str:
    """The module that checks a notebook's exercises, n04 for 04; "" for a notebook that has none."""
    found = CHECKER.search("\n".join(cells))
    return found[1] if found else ""


def column(module: str, exercise: str) -> str:
    """An exercise's column, "04 decode_step": what its check writes into `solved.txt`."""
    return f"{module.removeprefix('n')} {exercise}"


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell makes, and those that it needs; all of its words where it is no Python."""
    try:
        table = symtable.symtable(TransformerManager().transform_cell(source), "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        words = set(re.findall(r"\w+", source))
        return words, words
    result = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    used = {one.get_name() for one in table.get_symbols() if one.is_referenced()}
    inner = table.get_children()
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        used |= {one.get_name() for one in scope.get_symbols() if one.is_global()}
    return result, used


def needed(cells: Sequence[str], check: str, at: int) -> list[str]:
    """The cells before this one that make what a check uses, and what they use in turn."""
    names, chosen = names_of(check)[1] - {"check"}, set[int]()  # which the check imports itself
    parts = [names_of(cell) for cell in cells[:at]]
    while more := {n for n, (result, _) in enumerate(parts) if result & names} - chosen:
        chosen |= more
        names |= {name for n in more for name in parts[n][1]}
    return [cells[n] for n in sorted(chosen)]


def state(cells: Sequence[str], exercise: str, check: str, seconds: int, ours: Sequence[str]) -> str:
    """Run what an exercise needs, and its check, in a fresh kernel; say what became of it.

    The first line of `check` imports the checker. It runs first, and it and `ours`, the cells that the pupil
    has not changed, may take longer: on a busy machine imports do.
    """
    begin = check.partition("\n")[0]
    places = [n for n, cell in enumerate(cells) if f"check.{exercise}(" in cell]
    wanted = needed(cells, check, places[-1] if places else len(cells))
    if not wanted:  # it was deleted
        return "not yet"
    book = new_notebook(cells=[new_code_cell(source) for source in (begin, *wanted, check)])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            book,
            timeout_func=lambda cell: 10 * seconds if cell.source in (begin, *ours) else seconds,
            allow_errors=True,
            kernel_name="python3",
            shutdown_kernel="immediate",
            resources={"metadata": {"path": folder}},
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT), "WATCH_IT_DECODE_OFFLINE": "1"}
        try:
            client.execute(env=env, stderr=subprocess.DEVNULL)
        except Exception:  # no end in time, an end of Python, or what else a pupil's code can do to it
            return "error"
    shown = [out for out in book.cells[-1].outputs if out.output_type == "execute_result"]
    return STATES.get(shown[0].data["text/plain"].partition(":")[0], "error") if shown else "error"


def collect(folder: Path, seconds: int = 30) -> list[dict[str, str]]:
    """A line for each pupil: the name, and what became of each exercise."""
    series = {checker(sources(path)): path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    columns = {column(module, name) for module, path in series.items() for name in asked(path)}
    lines: dict[str, dict[str, str]] = {}
    for path in sorted([*folder.glob(f"*/**/{SOLVED}"), *folder.rglob("*.ipynb")]):
        pupil = path.relative_to(folder).parts[0].removesuffix(".ipynb")
        if ".ipynb_checkpoints" in path.parts:
            continue
        line = lines.setdefault(pupil, {"pupil": pupil})
        try:
            if path.name == SOLVED:
                noted = path.read_text(encoding="utf-8").splitlines()
                names = [text for text in noted if text in columns]
                line |= {name: max(line.get(name, ""), "noted", key=BEST.index) for name in names}
                continue
            cells = sources(path)
        except Exception as error:  # it is not what its name says
            print(f"{path}: cannot be read: {error}", file=sys.stderr)
            continue
        if not (module := checker(cells)) or module not in series:
            print(f"{path}: no notebook of the series that has exercises", file=sys.stderr)
            continue
        ours = sources(series[module])
        begin = CHECKER.search("\n".join(ours))
        assert begin is not None, "a notebook of `series` was found by it"
        for name, parts in asked(series[module]).items():
            found = state(cells, name, f"{begin[0]}\n{parts['check']}", seconds, ours)
            place = column(module, name)
            line[place] = max(line.get(place, ""), found, key=BEST.index)
            print(f"{path}: {name}: {found}", file=sys.stderr)
    return list(lines.values())


def main() -> None:
    """Write the lines."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seconds", type=int, default=30, help="a cell may take, at most")
    given = arguments.parse_args()
    if not given.folder.is_dir():
        arguments.error(f"there is no folder {given.folder}")
    lines = collect(given.folder, given.seconds)
    columns = sorted({name for line in lines for name in line} - {"pupil"})
    table = csv.DictWriter(sys.stdout, ["pupil", *columns], restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
