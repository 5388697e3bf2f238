"""Support for cells that contain the reader's own code.

The module limits the time of a call, quotes the line that raised an error, and records solved exercises.
"""

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

SOLVED_FILE = "solved.txt"  # in the kernel's folder, that of the notebook; one line per exercise: "05 mask"
_raise_in: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc


class TimeLimitError(BaseException):
    """Raised when a call exceeds its time limit.

    It is a BaseException, so that `except Exception` in the reader's code does not catch it.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError inside the `with` block if the block runs for more than `seconds`.

    A call into compiled code is not interrupted. The error is raised when the call returns to Python code.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    timer = threading.Timer(seconds, _raise_in, (thread, ctypes.py_object(TimeLimitError)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        # A pending exception is raised in these lines. If it were cancelled instead, Python 3.11 would wait
        # for it forever, and a tracer such as a debugger would be in an endless loop.
        for _ in range(2):
            pass


def quote_failing_line(error: BaseException) -> str:
    """Return a sentence that quotes the line in the reader's cell at which an error was raised.

    If the traceback includes several cells, the outermost cell is quoted. If it includes no cell, return "".
    """
    frames = [(frame.f_code.co_filename, n) for frame, n in traceback.walk_tb(error.__traceback__)]
    cells = [name for name, n in frames if linecache.getline(name, n) and not Path(name).exists()]
    if not cells:
        return ""
    number = [n for name, n in frames if name == cells[0]][-1]  # in the answer, not in what it calls
    return f" In line {number} of its cell: {clip(linecache.getline(cells[0], number))}"


def record_solved(exercise: object) -> None:
    """Add a solved exercise to SOLVED_FILE, unless the file already lists it.

    Only the exercises in the module that the notebook imports as `check` are recorded. Outside a notebook, or
    if the file cannot be written, nothing happens.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    checker = shell.user_ns.get("check") if shell else None
    if not ismodule(checker):
        return
    notebook = checker.__name__.rpartition(".")[2].removeprefix("n")
    for line in (f"{notebook} {name}" for name, value in vars(checker).items() if value is exercise):
        with suppress(OSError, ValueError), Path(SOLVED_FILE).open("a+", encoding="utf-8") as file:
            file.seek(0)
            if line not in file.read().splitlines():
                print(line, file=file)
