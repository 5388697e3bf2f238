"""Plant small bugs by machine, one at a time, and see whether the tests notice.

    python .ci/mutants.py [part …] [--all]

Takes a seeded sample of every part (files and the tests that should notice), so that it ends in half an hour
on two cores; with names of parts those only, with --all every bug. The bugs come from cosmic-ray, those of
JavaScript from Stryker (which npx fetches), and are made in copies of the project. No part of the test run.
Prints a line a part, then the survivors.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import attrs
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).resolve().parent.parent
SAMPLE, SEED, TIMEOUT = 25, 1, 180  # bugs a part; seconds after which a bug counts as noticed: it hangs
PARTS = {
    "toy": ("helpers/toy.py", "tests/test_toy.py"),
    "sampling": ("helpers/sampling.py", "tests/test_sampling.py tests/test_speculate.py"),
    "cost": ("helpers/cost/counts.py", "tests/test_cost.py"),
    "bytes": ("helpers/cost/bytes.py", "tests/test_cost_bytes.py"),
    "roofline": ("helpers/cost/roofline.py", "tests/test_roofline.py"),
    "serve": ("helpers/serve/*.py", "tests/test_serve_scheduler.py tests/test_serve_engine.py"),
    "attention": ("helpers/model/attention.py", "tests/test_model_attention.py tests/test_model_equal.py"),
    "cache": (
        "helpers/model/cache/*.py",
        "tests/test_model_cache.py tests/test_model_ragged.py tests/test_model_smaller.py",
    ),
    "transformer": (
        "helpers/model/transformer.py",
        "tests/test_model_attention.py tests/test_model_equal.py",
    ),
    "generate": ("helpers/model/generate.py", "tests/test_model_generate.py"),
    "train": ("helpers/model/train.py", "tests/test_train.py"),
    "recording": (
        "helpers/recording/*.py",
        "tests/test_recorder.py tests/test_recording_model.py tests/test_trace.py",
    ),
    "trace": ("helpers/trace/*.py", "tests/test_trace.py tests/test_trace_compare.py"),
    "evaluate": ("helpers/model/evaluate.py", "tests/test_shipped.py"),
    "load": ("helpers/model/load/*.py", "tests/test_load.py tests/test_load_gguf.py"),
    "tokenizer": ("helpers/tokenizer.py", "tests/test_tokenizer.py"),
    "corpus": ("helpers/corpus.py", "tests/test_corpus.py"),
    "moment": ("helpers/stepper/moment.py", "tests/test_stepper.py"),
    "check": ("helpers/check/exercise.py", "tests/test_check.py"),
    "javascript": ("helpers/stepper/js/*.js", "tests/js/*.test.mjs"),
}
PURE = (
    "address",
    "cost",
    "format",
    "frame",
    "geometry",
    "links",
    "pool",
    "race",
    "strip",
    "toy",
    "trace",
    "what_if",
    "words",
)  # the rest needs a page
STRYKER = "@stryker-mutator/core@9"  # the last that runs with Node 20


def mutations(path: Path, root: Path) -> list[MutationSpec]:
    """All bugs that can be planted in a file: not in its annotations, which nothing runs."""
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    quiet = [span for node in ast.walk(tree) for span in annotated(node)]
    found = [item.mutations[0] for item in _all_work_items([root / path], {})]
    return [m for m in found if not any(start <= m.start_pos < end for start, end in quiet)]


def annotated(node: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a node's annotations stand: (line, column) of beginning and end."""
    for name in ("annotation", "returns"):
        if isinstance(output := getattr(node, name, None), ast.expr):
            yield (output.lineno, output.col_offset), (output.end_lineno or 0, output.end_col_offset or 0)


def copy_of_the_project(folder: Path) -> Path:
    """Copy what git tracks, as it stands here."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def outcome(mutation: MutationSpec, tests: str, copy: Path) -> tuple[bool, str]:
    """Plant one bug in a copy; whether a test failed, and the change."""
    options = "-x -q -n0 -p no:nbval -p no:cacheprovider -o addopts= --import-mode=importlib"
    python = f"env PYTHONPATH={copy} OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 {sys.executable}"
    command = f"{python} -m pytest --rootdir={copy} -c {copy}/pyproject.toml {options} "
    command += " ".join(f"{copy}/{test}" for test in tests.split())
    result = mutate_and_test([mutation], command, TIMEOUT)
    diff = "\n".join(
        line for line in (result.diff or "").splitlines() if line[:1] in "+-@" and line[1:2] != line[0]
    )
    return result.test_outcome is not TestOutcome.SURVIVED, f"{mutation.operator_name}\n{diff}"


def run_part(name: str, copies: SimpleQueue[Path], everything: bool) -> tuple[int, list[str]]:
    """Try a part's bugs; how many there were, and the survivors."""
    pattern, tests = PARTS[name]
    files = sorted(path.relative_to(ROOT) for path in ROOT.glob(pattern))
    places: dict[tuple[Path, tuple[int, int]], list[MutationSpec]] = {}
    for file in files:
        for mutation in mutations(file, ROOT):
            places.setdefault((file, mutation.start_pos), []).append(mutation)
    chosen = [(file, mutation) for (file, _), found in places.items() for mutation in found]
    if not everything:  # places first: one + can become ten other operators, and would outweigh the rest
        rng = random.Random(SEED)
        drawn = rng.sample(sorted(places), min(SAMPLE, len(places)))
        chosen = [(place[0], rng.choice(places[place])) for place in drawn]

    def one(file: Path, mutation: MutationSpec) -> tuple[bool, str]:
        copy = copies.get()
        try:
            noticed, diff = outcome(attrs.evolve(mutation, module_path=copy / file), tests, copy)
            return noticed, f"{file}: {diff}"
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(copies.qsize()) as pool:
        results = list(pool.map(lambda pair: one(*pair), chosen))
    return len(chosen), [diff for noticed, diff in results if not noticed]


def run_javascript(copy: Path, everything: bool) -> tuple[int, list[str]]:
    """The same for the modules that need no page: a sample of their lines, with all of Stryker's bugs."""
    sys.path.insert(0, str(ROOT))
    from tests.test_front_end import write_traces

    write_traces(copy)
    places = []
    for name in PURE:
        file = f"helpers/stepper/js/{name}.js"
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        places += [(file, n) for n, line in enumerate(lines, 1) if re.search(r"[-+*/<>=?&|]|\w\(", line)]
    chosen = places if everything else random.Random(SEED).sample(places, 2 * SAMPLE)
    settings = {
        "testRunner": "command",
        "commandRunner": {"command": "node --test tests/js/"},
        "mutate": [f"{file}:{n}-{n}" for file, n in sorted(chosen)],
        "concurrency": 2,
        "reporters": ["json"],
        "ignorePatterns": ["/*", "!/package.json", "!/helpers/stepper", "!/tests/js"],
        "mutator": {
            "excludedMutations": ["StringLiteral", "Regex"]
        },  # words are view.json's; the rest is names
    }
    (copy / "stryker.json").write_text(json.dumps(settings), encoding="utf-8")
    environment = {**os.environ, "WATCH_IT_DECODE_TRACES": str(copy)}
    command = ["npx", "--yes", "-p", STRYKER, "stryker", "run", "stryker.json"]
    subprocess.run(command, cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL)
    report = json.loads((copy / "reports/mutation/mutation.json").read_text(encoding="utf-8"))
    tried, left = 0, []
    for file, found in report["files"].items():
        for bug in found["mutants"]:
            tried += bug["status"] in ("Killed", "Timeout", "Survived")
            if bug["status"] == "Survived":
                line = found["source"].splitlines()[bug["location"]["start"]["line"] - 1].strip()
                left.append(f"{file}: {bug['mutatorName']}\n {line}\n→{bug['replacement']}")
    return tried, left


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to try; all without one")
    parser.add_argument("--all", action="store_true", help="every bug, not a sample")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for n in range(2):
            copies.put(copy_of_the_project(Path(folder) / str(n)))
        survivors: list[str] = []
        for name in options.parts or PARTS:
            if name == "javascript":
                tried, left = run_javascript(Path(folder) / "0", options.all)
            else:
                tried, left = run_part(name, copies, options.all)
            print(
                f"{name:12} {tried - len(left):4} of {tried:4} noticed  {1 - len(left) / tried:4.0%}",
                flush=True,
            )
            survivors += left
    print("\nSurvivors\n", *survivors, sep="\n")


if __name__ == "__main__":
    main()
