"""`python -m tools`: what it lists is there, and what is there is listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine import ROOT
from tools.__main__ import COMMANDS, main

NAMES = {name for group in COMMANDS.values() for name in group}


def test_every_module_with_a_main_is_a_command() -> None:
    modules = {p.stem for p in Path(ROOT, "tools").glob("[!_]*.py") if "\ndef main(" in p.read_text("utf-8")}
    assert modules == NAMES


@pytest.mark.parametrize("name", ["reset", "sizes", "stamp"])
def test_help_is_the_commands_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tools", name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


def test_an_unknown_command_gets_the_list() -> None:
    done = subprocess.run([sys.executable, "-m", "tools", "rest"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("'rest' is not a command")
    assert all(f"  {name} " in done.stderr for name in NAMES)
