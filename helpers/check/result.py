"""What a checker answers: right, not right yet or not solved yet, in a few lines."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from helpers.drawing.numbers import number

TOLERANCE = 0.01  # readers may round to two digits; messages show two, so numbers told apart look different
LONGEST = 120  # characters of anything that came from a reader


@dataclass(frozen=True, repr=False)
class Result:
    """A checker's answer."""

    state: str  # "right", "not right yet" or "not solved yet"
    message: str  # what showed it
    reason: str = ""  # of a wrong answer, where it is known

    @property
    def solved(self) -> bool:
        """Whether the exercise is done."""
        return self.state == "right"

    def __repr__(self) -> str:
        reason = f"\nLikely reason: {self.reason}" * bool(self.reason)
        return f"{self.state.capitalize()}: {self.message}{reason}"

    def _repr_html_(self) -> str | None:
        return None if self.state == "not solved yet" else marked(self.solved, repr(self))


class NotSolvedError(Exception):
    """The reader has not written it yet, or not all of it; the message says what is left to write."""


class NotRightError(Exception):
    """An answer is wrong: what was got, what was expected, and the likely reason and the line if known."""

    def __init__(self, message: str, reason: str = "", line: str = "") -> None:
        super().__init__(message)
        self.message, self.reason, self.line = message, reason, line


def marked(right: bool, text: str) -> str:
    """Write lines as HTML in which right and wrong look different at a glance: by sign, and by colour."""
    sign, name, colour = ("✓", "success", "#2e7d32") if right else ("✗", "error", "#c62828")
    colour = f"var(--jp-{name}-color1, {colour})"  # JupyterLab's own fits its theme
    body = escape(text).replace("\n", "<br>")
    box = f"border-left: 6px solid {colour}; padding: 2px 10px"
    return f'<div style="{box}"><b style="color: {colour}">{sign}</b> {body}</div>'


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of PyTorch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def clip(text: str) -> str:
    """Write a text on one line, and cut it where it is long."""
    line = " ".join(text[: 4 * LONGEST].split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


def show(value: Any) -> str:
    """Write a number with two digits at most, several with commas between them, text as it is."""
    if isinstance(value, str):
        return clip(value)
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, Iterable):
        return clip(", ".join(map(show, value))) or "nothing"
    if value is None or isinstance(value, bool | np.bool_):
        return str(value)
    if np.isnan(value):
        return "NaN"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return number(float(value))


def describe(value: Any) -> str:
    """Say what kind of thing a reader handed over instead of what was expected, on one line."""
    kind = clip(type(value).__name__)
    if value is None or value is ...:
        return "None" if value is None else "..."
    if is_tensor(value) or isinstance(value, np.ndarray):
        return f"{'a tensor' if is_tensor(value) else 'an array'} of shape {tuple(value.shape)}"
    if callable(value):
        return f"the function {clip(str(getattr(value, '__name__', kind)))}"
    if isinstance(value, list | tuple) and any(hasattr(part, "shape") for part in value):
        return f"a {kind} of {len(value)} parts"
    text = reprlib.repr(value)
    if text.startswith("<") or " at 0x" in text:  # an address, which is another one each time
        return f"something of type {kind}"
    return f"{clip(text)} ({kind})"
