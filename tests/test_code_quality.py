"""Lint, format and types, in the same command as the tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.machine import ROOT

COMMANDS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_code_quality(what: str) -> None:
    command = [sys.executable, "-m", *COMMANDS[what]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(COMMANDS[what])}\n{done.stdout}{done.stderr}"
