"""The reader's own cells: which line raised, which did not compile, what they solved, a call without end."""

from __future__ import annotations

import ast
import ctypes
import linecache
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import ismodule
from pathlib import Path
from typing import Any

from helpers.check.result import clip

SOLVED = "solved.txt"  # beside the notebook, where its kernel works; a line an exercise: "05 mask"
_raise_in: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc


class NotBackError(BaseException):
    """A call has not come back in time. No `except Exception` of a reader's catches it."""


class StoppedError(KeyboardInterrupt):
    """The reader has interrupted a call; a notebook shows where that was, and none of our frames."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of it."""
        return [f"Interrupted.{self}"]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise NotBackError in what stands inside, at its next line of Python, when it takes longer."""
    thread = ctypes.c_ulong(threading.get_ident())
    timer = threading.Timer(seconds, _raise_in, (thread, ctypes.py_object(NotBackError)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for _ in range(
            2
        ):  # what is still to be raised is raised here: taken back, it would leave Python 3.11
            pass  # waiting for it for good, and whoever traces (a debugger) in an endless loop


def line_of(error: BaseException) -> str:
    """Return the line of a reader's cell in which an error came up, as a sentence; "" if it was in none."""
    frames = [(frame.f_code.co_filename, n) for frame, n in traceback.walk_tb(error.__traceback__)]
    cells = [name for name, n in frames if linecache.getline(name, n) and not Path(name).exists()]
    if not cells:
        return ""
    number = [n for name, n in frames if name == cells[0]][-1]  # of the answer, not of what that calls
    return f" In line {number} of its cell: {clip(linecache.getline(cells[0], number))}"


def notebook() -> Any:
    """Return IPython's shell, or None where no notebook runs."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def keep_solved(exercise: object) -> None:
    """Write into SOLVED, once, that an exercise of `check` is solved; pass over it where that cannot be."""
    shell = notebook()
    checker = shell.user_ns.get("check") if shell else None
    if not ismodule(checker):
        return
    page = checker.__name__.rpartition(".")[2].removeprefix("n")
    for line in (f"{page} {name}" for name, one in vars(checker).items() if one is exercise):
        with suppress(OSError, ValueError), Path(SOLVED).open("a+", encoding="utf-8") as file:
            file.seek(0)
            if line not in file.read().splitlines():
                print(line, file=file)


def fails_to_compile(name: str) -> bool:
    """Whether the newest cell that writes this name has a syntax error: what it wrote before stands."""
    shell = notebook()
    writes = re.compile(rf"^(?:def|class) +{re.escape(name)}\b|^{re.escape(name)} *=", re.MULTILINE)
    sources = reversed(shell.user_ns["In"] if shell else [])
    try:
        compile(next(filter(writes.search, sources), ""), name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return True
    return False
