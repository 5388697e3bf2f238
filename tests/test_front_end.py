"""The front end's modules: their tests in tests/js, their types and their bundle."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.recording.diary import load_diary
from helpers.recording.toy import record_toy
from helpers.stepper import script
from helpers.trace import Trace
from tests.config_cases import write_configs
from tests.expected import expected
from tests.lab_cases import write_lab
from tests.machine import ROOT
from tests.made_traces import WALKED, every_look, kinds
from tests.pool_cases import write_pools
from tests.toy_cases import write_cases
from tests.work_cases import write_work

# Those that JavaScript's tests ask for beside the ones that are walked.
TRACES: dict[str, Callable[[], Trace]] = {
    **WALKED,
    "kinds": kinds,
    "n64": lambda: record_toy(ban_eos=True, max_new_tokens=61),
    "one": lambda: record_toy(["Today"], max_new_tokens=1, training=False),
    "diary": load_diary,
}


def looks_at(trace: Trace) -> list[Any]:
    """All that can be turned to, and what is expected of it; the rest stands in the trace."""
    names = ("marks", "tokens", "untouched", "entries", "note")
    looks = [(look, expected(trace, *look)) for look in every_look(trace)]
    return [[look, {name: want[name] for name in names}] for look, want in looks]


def write_traces(folder: Path) -> None:
    """Write what the tests in JavaScript read: traces, and what each look at them has to show."""
    traces = {name: make() for name, make in TRACES.items()}
    for name, trace in traces.items():
        (folder / f"{name}.json").write_text(trace.to_json(), encoding="utf-8")
    walked = {name: looks_at(traces[name]) for name in [*WALKED, "kinds"]}
    (folder / "expected.json").write_text(json.dumps(walked), encoding="utf-8")
    write_cases(folder)
    write_work(folder)
    write_pools(folder)
    write_configs(folder)
    write_lab(folder, {name: traces[name] for name in ("two", "long run", "diary")})


def test_javascript(node: str, tmp_path: Path) -> None:
    write_traces(tmp_path)
    files = sorted(str(path) for path in (ROOT / "tests/js").glob("*.test.mjs"))
    assert files
    done = subprocess.run(
        [node, "--test", *files],
        env={"WATCH_IT_DECODE_TRACES": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE) or re.search(r"pass (\d+)", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 20


def test_types_format_and_bundle(npm: str) -> None:
    done = subprocess.run([npm, "run", "check"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_bundle_is_a_script_and_a_module(node: str, tmp_path: Path) -> None:
    for name, text in (("page.cjs", script.bundle()), ("widget.mjs", script.widget_module())):
        (tmp_path / name).write_text(text, encoding="utf-8")
        subprocess.run([node, "--check", tmp_path / name], check=True, capture_output=True, timeout=60)
    assert "</script" not in script.bundle().lower(), "it may stand in a page"


def test_text_is_never_markup() -> None:
    for path in (ROOT / "helpers/stepper/js").rglob("*.*s*"):
        assert not re.search("innerHTML|insertAdjacentHTML|outerHTML", path.read_text("utf-8"), re.IGNORECASE)
