"""`python -m tools`: what it lists is there, and what is there is listed."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import nbformat
import pytest

from helpers.stepper import WhatIf, page, still
from tests.machine import ROOT
from tools import stills
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


def test_stills_without_chromium_and_those_that_nothing_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known still is left as it is, a new one cannot be taken; what is in no notebook goes."""
    monkeypatch.setattr(still, "FOLDER", tmp_path)
    monkeypatch.setattr(stills, "FOLDER", tmp_path)
    monkeypatch.setattr(stills, "find_chromium", lambda: None)
    view = WhatIf()
    state = {"data": view.data, "options": page.front_end_options(view)}
    book = nbformat.v4.new_notebook(metadata={"widgets": {stills.STATE: {"state": {"1": {"state": state}}}}})
    with pytest.raises(FileNotFoundError, match="there is no Chromium to take one"):
        stills.take_stills(book, retake_all=False)
    name = still.still_name(view.data, page.front_end_options(view))
    still.Still(view.data, page.front_end_options(view), "", 424, [], [], b"png").save(name)
    assert stills.take_stills(book, retake_all=False) is False
    data = {"image/png": b64encode(b"png").decode() + "\n"}
    shows = nbformat.v4.new_output("display_data", data)
    book.cells.append(nbformat.v4.new_code_cell(outputs=[shows]))
    stills.remove_unused_stills([book])
    assert view.still is not None
    stills.remove_unused_stills([])
    assert view.still is None
    assert not list(tmp_path.iterdir())
