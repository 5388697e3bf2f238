"""What Part I costs: imports, the toy's two forms of prefill, decode with and without a cache; all notebooks.

    python tests/benchmarks/bench_part1.py                    # all tables, about two minutes
    python tests/benchmarks/bench_part1.py imports toy        # some of them

Counts come from traces and are exact. Times are medians of runs that took turns. The stepper has a
benchmark of its own beside this one. Not part of the test run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".ci")]

from helpers import toy  # noqa: E402 - from the tree this file stands in
from helpers.measure import in_turns, in_words  # noqa: E402
from helpers.recording.toy import record_toy  # noqa: E402

IMPORT_TURNS = 7


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, its first column to the left and the others to the right."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(heads))]
    print(f"\n{title}")
    for row in cells:
        first, *rest = (
            cell.ljust(w) if n == 0 else cell.rjust(w)
            for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]))


def within(value: float, limit: float) -> str:
    return "yes" if value < limit else "NO"


# --- imports ---


def imports_of(notebook: Path) -> str:
    """The import lines of a notebook's first cell that imports from `helpers`."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "code" and any(line.startswith("from helpers") for line in lines):
            return "\n".join(line for line in lines if line.startswith(("import ", "from ")))
    raise SystemExit(f"{notebook.name} imports nothing from helpers")


def import_seconds(statements: str) -> tuple[float, float, bool]:
    """Seconds that the statements take in a fresh process, by the wall clock and on the processor; torch?"""
    now = "time.perf_counter(), time.process_time()"
    code = f"import sys, time\nwall, cpu = {now}\n{statements}\n"
    code += "print(time.perf_counter() - wall, time.process_time() - cpu, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    wall, cpu, torch = done.stdout.split()
    return float(wall), float(cpu), torch == "True"


def bench_imports() -> None:
    """`import helpers` and all that 00 needs, each in fresh processes, in turns."""
    everything = imports_of(ROOT / "notebooks" / "00_start_here.ipynb")
    wanted = {"import helpers": ("import helpers", 0.05), "all that 00 needs": (everything, 1.0)}
    taken: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in wanted}
    for _ in range(IMPORT_TURNS):
        for name, (statements, _) in wanted.items():
            taken[name].append(import_seconds(statements))
    rows = []
    for name, (_, limit) in wanted.items():
        wall, cpu = (float(np.median([turn[n] for turn in taken[name]])) for n in (0, 1))
        torch = "loaded" if any(turn[2] for turn in taken[name]) else "not loaded"
        rows.append([name, in_words(wall), in_words(cpu), in_words(limit), within(wall, limit), torch])
    heads = ["", "time", "of the processor", "limit", "under", "torch"]
    table(f"Imports, fresh processes, median of {IMPORT_TURNS}", heads, rows)


# --- the toy ---


def bench_toy() -> None:
    """Prefill as a loop against the matrix form, and a reply with and without the cache."""
    rows = []
    for T in (16, 64, 256, 512):
        numbers = np.random.default_rng(0).uniform(0, 20, T)
        tasks: dict[str, Callable[[], Any]] = {
            "loop": lambda numbers=numbers: toy.prefill_loop(numbers.tolist()),  # type: ignore[misc]
            "matrix": lambda numbers=numbers: toy.prefill_matrix(numbers),  # type: ignore[misc]
            "dots": lambda numbers=numbers: toy.run_pass(numbers),  # type: ignore[misc]
        }
        loop, matrix, dots = (timing.median for timing in in_turns(tasks).values())
        rows.append([T, in_words(loop), in_words(matrix), f"{loop / matrix:.2g}", in_words(dots)])
    heads = ["tokens", "loop", "matrix form", "loop / matrix", "dot products"]
    table("Prefill of the toy, median of 9 turns", heads, rows)
    bench_decode()


def reply(prompt: list[float], n: int, with_cache: bool) -> None:
    """Prefill and n - 1 decode steps; every new token carries what `nice` does."""
    cache, numbers = toy.KVCache() if with_cache else None, list(prompt)
    toy.lm_head(toy.run_pass(numbers, cache)[-1])
    for _ in range(n - 1):
        numbers.append(14.0)
        toy.lm_head(toy.run_pass(numbers[-1:] if with_cache else numbers, cache)[-1])


def bench_decode() -> None:
    """The same reply with the cache and without: counts from the trace, times of the passes alone."""
    rows = []
    for P, n in ((4, 8), (4, 60), (64, 64), (448, 64)):
        words, numbers = ["so"] * P, [5.0] * P
        trace = record_toy(words, numbers, max_new=n, ban_eos=True, training=False)
        counts = {
            run.name: {name: sum(p.counts[name] for p in run.passes) for name in ("positions", "pairs")}
            for run in trace.runs
        }
        timings = in_turns(
            {
                "cached": lambda P=P, n=n: reply([5.0] * P, n, True),  # type: ignore[misc]
                "uncached": lambda P=P, n=n: reply([5.0] * P, n, False),  # type: ignore[misc]
            },
            turns=5,
        )
        for name in ("uncached", "cached"):
            of_run = counts[name]
            ratio = timings["uncached"].median / timings[name].median
            row = [f"{P} + {n}, {name}", f"{of_run['positions']:,}", f"{of_run['pairs']:,}"]
            rows.append([*row, in_words(timings[name].median), f"{ratio:.2g}"])
    heads = ["prompt + reply", "tokens processed", "pairs a head", "time", "times faster"]
    table("Decode of the toy: counts are exact, times the median of 5 turns", heads, rows)


# --- notebooks ---


def bench_notebooks() -> None:
    """Every notebook in a fresh kernel, from its own folder; nothing is written."""
    import nbformat
    from run_notebooks import execute

    rows = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        start = time.perf_counter()
        execute(book, path.parent)
        seconds, size = time.perf_counter() - start, path.stat().st_size
        part2 = path.stem >= "05"
        limit = 120 if path.stem.startswith("08") else 60 if part2 else 20
        fine = [within(seconds, limit), within(size, 400_000 if part2 else 300_000)]
        rows.append([path.stem, f"{seconds:.1f} s", fine[0], f"{size / 1000:.0f} KB", fine[1]])
    table(
        "Notebooks, one run each",
        ["", "time with kernel start", "under 20, 60 or 120 s", "file", "under 300 or 400 KB"],
        rows,
    )


PARTS = {"imports": bench_imports, "toy": bench_toy, "notebooks": bench_notebooks}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="|".join(PARTS))
    chosen = parser.parse_args().parts or list(PARTS)
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{versions}, {os.cpu_count()} processors, load {load}")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
