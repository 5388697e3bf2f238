"""The reader's own cells: which line raised, what they solved, a call without end."""

from __future__ import annotations

import ctypes
import linecache
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
        # What is still to be raised is raised in these lines: taken back, it would leave Python 3.11 waiting
        # for it for good, and whoever traces (a debugger) in an endless loop.
        for _ in range(2):
            pass


def line_of(error: BaseException) -> str:
    """Return the line of a reader's cell in which an error came up, as a sentence; "" if it was in none."""
    frames = [(frame.f_code.co_filename, n) for frame, n in traceback.walk_tb(error.__traceback__)]
    cells = [name for name, n in frames if linecache.getline(name, n) and not Path(name).exists()]
    if not cells:
        return ""
    number = [n for name, n in frames if name == cells[0]][-1]  # of the answer, not of what that calls
    return f" In line {number} of its cell: {clip(linecache.getline(cells[0], number))}"


def keep_solved(exercise: object) -> None:
    """Write into SOLVED, once, that an exercise of `check` is solved; pass over it where that cannot be."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    checker = shell.user_ns.get("check") if shell else None
    if not ismodule(checker):
        return
    page = checker.__name__.rpartition(".")[2].removeprefix("n")
    for line in (f"{page} {name}" for name, one in vars(checker).items() if one is exercise):
        with suppress(OSError, ValueError), Path(SOLVED).open("a+", encoding="utf-8") as file:
            file.seek(0)
            if line not in file.read().splitlines():
                print(line, file=file)
