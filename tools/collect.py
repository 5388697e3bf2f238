"""Check the exercises in the notebooks that students submitted, and print the results as CSV.

    python -m tools collect homework > results.csv
    python -m tools collect homework --seconds 60     # time limit per cell on a slow machine; default: 30

This runs the students' code under your account on this machine. Read the code first, or use a sandbox.

Each student has a folder (homework/ann/04_kv_cache.ipynb) or a single notebook (homework/ben_04.ipynb). The
CSV has one row per student and one column per exercise. A cell of the CSV contains one of these states:

    solved     the original check accepts the solution
    not yet    the solution is missing or not correct yet
    error      the code is not valid Python, exceeded the time limit, or crashed the kernel
    noted      only the student's `solved.txt`, which the checks write next to the notebooks, says "solved"
    (empty)    the notebook was not submitted

If a student submitted several copies of a notebook, the best state of each exercise is used. Each exercise is
run in a fresh kernel, in an empty folder. Only the cells that the exercise needs are run, followed by its
original check instead of the student's copy of the check.

The exercise of one_page.ipynb is checked by a cell of the page, not by `helpers`, so it is not collected.
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
from typing import NamedTuple

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from helpers.check.reader import SOLVED_FILE
from tools.exercises import exercise_sources
from tools.launch import ROOT, argument_parser

CHECKER = re.compile(r"^from helpers\.(?:check|chapters) import (\w+) as check\b", re.MULTILINE)
STATES_FROM_WORST = ("", "error", "not yet", "noted", "solved")
STATE_OF_RESULT = {"Right": "solved", "Not right yet": "not yet", "Not solved yet": "not yet"}


def code_sources(path: Path) -> list[str]:
    """Return the source of each code cell in the notebook at `path`."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def checker_module(cells: Sequence[str]) -> str:
    """Return the name of the module that checks a notebook's exercises, such as "n04".

    It is taken from the cell that imports this module as `check`. If there is no such cell, "" is returned.
    """
    found = CHECKER.search("\n".join(cells))
    return found[1] if found else ""


def column_name(module: str, exercise: str) -> str:
    """Return the name of an exercise's column, such as "04 decode_step".

    `solved.txt` contains the same names, one per line.
    """
    return f"{module.removeprefix('n')} {exercise}"


class DefinedAndUsed(NamedTuple):
    """The Python names that a cell assigns or imports, and the names that it uses."""

    defined: set[str]
    used: set[str]


def defined_and_used_names(source: str) -> DefinedAndUsed:
    """Return the global names that a cell defines, and those that it uses.

    If the cell is not valid Python, both sets contain every word in it.
    """
    try:
        table = symtable.symtable(TransformerManager().transform_cell(source), "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        words = set(re.findall(r"\w+", source))
        return DefinedAndUsed(words, words)
    defined = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = table.get_children()
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        used |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
    return DefinedAndUsed(defined, used)


def cells_needed_by(cells: Sequence[str], check: str, end: int) -> list[str]:
    """Return the sources of the cells that a check needs, in their order in the notebook.

    A cell is needed if it defines a name that is used by the check or by another needed cell.

    Args:
        cells: sources of the code cells.
        check: source of the check.
        end: index of the first cell that is not considered.
    """
    names, chosen = (
        defined_and_used_names(check).used - {"check"},
        set[int](),
    )  # the check imports this name itself
    parts = [defined_and_used_names(cell) for cell in cells[:end]]
    while more := {n for n, (defined, _) in enumerate(parts) if defined & names} - chosen:
        chosen |= more
        names |= {name for n in more for name in parts[n].used}
    return [cells[n] for n in sorted(chosen)]


def exercise_state(
    cells: Sequence[str], exercise: str, check: str, seconds: int, original_cells: Sequence[str]
) -> str:
    """Run an exercise's check, after the cells that it needs, in a fresh kernel. Return the resulting state.

    The states that can result are "solved", "not yet" and "error".

    Args:
        cells: sources of the student's code cells.
        exercise: name of the exercise.
        check: source of the original check. Its first line imports the checker module; this line is also
            run before the student's cells.
        seconds: time limit per cell. The limit is ten times as long for the import of the checker module and
            for cells that the student has not changed, because imports can be slow on a busy machine.
        original_cells: sources of the original notebook's code cells.
    """
    begin = check.partition("\n")[0]
    checks = [n for n, cell in enumerate(cells) if f"check.{exercise}(" in cell]
    wanted = cells_needed_by(cells, check, checks[-1] if checks else len(cells))
    if not wanted:  # the student deleted it
        return "not yet"
    book = new_notebook(cells=[new_code_cell(source) for source in (begin, *wanted, check)])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            book,
            timeout_func=lambda cell: 10 * seconds if cell.source in (begin, *original_cells) else seconds,
            allow_errors=True,
            kernel_name="python3",
            shutdown_kernel="immediate",
            resources={"metadata": {"path": folder}},
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT), "WATCH_IT_DECODE_OFFLINE": "1"}
        try:
            client.execute(env=env, stderr=subprocess.DEVNULL)
        except Exception:  # out of time, a crash of Python, or anything else that a student's code can cause
            return "error"
    shown = [out for out in book.cells[-1].outputs if out.output_type == "execute_result"]
    return STATE_OF_RESULT.get(shown[0].data["text/plain"].partition(":")[0], "error") if shown else "error"


def collect_results(folder: Path, seconds: int = 30) -> list[dict[str, str]]:
    """Run the exercises of all students, and return one dict per student, as for a row of the CSV.

    A dict has the student's name under "student", and the state of each exercise under the name of its
    column. Progress and unreadable notebooks are reported on stderr.

    Args:
        folder: the folder with the students' notebooks.
        seconds: time limit per cell.
    """
    series = {
        checker_module(code_sources(path)): path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    }
    columns = {
        column_name(module, name) for module, path in series.items() for name in exercise_sources(path)
    }
    rows: dict[str, dict[str, str]] = {}
    for path in sorted([*folder.glob(f"*/**/{SOLVED_FILE}"), *folder.rglob("*.ipynb")]):
        student = path.relative_to(folder).parts[0].removesuffix(".ipynb")
        if ".ipynb_checkpoints" in path.parts:
            continue
        row = rows.setdefault(student, {"student": student})
        try:
            if path.name == SOLVED_FILE:
                noted = path.read_text(encoding="utf-8").splitlines()
                names = [text for text in noted if text in columns]
                row |= {name: max(row.get(name, ""), "noted", key=STATES_FROM_WORST.index) for name in names}
                continue
            cells = code_sources(path)
        except Exception as error:  # not a notebook or text, whatever its name
            print(f"{path}: cannot be read: {error}", file=sys.stderr)
            continue
        if not (module := checker_module(cells)) or module not in series:
            print(f"{path}: no notebook of the series that has exercises", file=sys.stderr)
            continue
        original = code_sources(series[module])
        begin = CHECKER.search("\n".join(original))
        assert begin is not None, "a notebook of `series` has this line"
        for name, parts in exercise_sources(series[module]).items():
            result = exercise_state(cells, name, f"{begin[0]}\n{parts['check']}", seconds, original)
            key = column_name(module, name)
            row[key] = max(row.get(key, ""), result, key=STATES_FROM_WORST.index)
            print(f"{path}: {name}: {result}", file=sys.stderr)
    return list(rows.values())


def main() -> None:
    """Check the students' notebooks, and print the CSV."""
    arguments = argument_parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seconds", type=int, default=30, help="time limit of a cell")
    options = arguments.parse_args()
    if not options.folder.is_dir():
        arguments.error(f"{options.folder} is not a folder; expected one with the students' notebooks")
    rows = collect_results(options.folder, options.seconds)
    columns = sorted({name for row in rows for name in row} - {"student"})
    table = csv.DictWriter(sys.stdout, ["student", *columns], restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
