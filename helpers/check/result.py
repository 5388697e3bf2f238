"""The result of a check: right, not right yet, or not solved yet.

The module also formats the values that the result's message shows.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from helpers.drawing.numbers import format_number

TOLERANCE = (
    0.01  # readers may round to two digits; messages show two, so that different numbers look different
)
MAX_CHARACTERS = 120  # maximum length of a text that shows a reader's value


@dataclass(frozen=True, repr=False)
class Result:
    """The result of checking a reader's answer, with the message that the reader sees."""

    state: Literal["right", "not right yet", "not solved yet"]
    message: str  # the values that justify the state, or what to write
    reason: str = ""  # why the answer is probably wrong, if known

    @property
    def solved(self) -> bool:
        """Whether the exercise is solved."""
        return self.state == "right"

    def __repr__(self) -> str:
        reason = f"\nLikely reason: {self.reason}" * bool(self.reason)
        return f"{self.state.capitalize()}: {self.message}{reason}"

    def _repr_html_(self) -> str | None:
        return None if self.state == "not solved yet" else result_html(self.solved, repr(self))


class NotSolvedError(Exception):
    """Raised when the reader has not completed the answer. The message says what to write."""


class NotRightError(Exception):
    """Raised when the reader's answer is wrong.

    Args:
        message: what the answer gives, and what was expected.
        reason: the probable reason, or "" if it is unknown.
        failing_line: if the answer raised an error, the sentence from `reader.quote_failing_line` that quotes
            the line; otherwise "".
    """

    def __init__(self, message: str, reason: str = "", failing_line: str = "") -> None:
        super().__init__(message)
        self.message, self.reason, self.failing_line = message, reason, failing_line


def result_html(is_right: bool, text: str) -> str:
    """Return a result's text as HTML. A sign (✓ or ✗) and a colour show whether the answer is right."""
    sign, name, colour = ("✓", "success", "#2e7d32") if is_right else ("✗", "error", "#c62828")
    colour = f"var(--jp-{name}-color1, {colour})"  # JupyterLab's own colour fits its theme
    body = escape(text).replace("\n", "<br>")
    box = f"border-left: 6px solid {colour}; padding: 2px 10px"
    return f'<div style="{box}"><b style="color: {colour}">{sign}</b> {body}</div>'


def is_tensor(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def clip(text: str) -> str:
    """Join a text's lines into one. If it is longer than MAX_CHARACTERS, cut it there and add " …"."""
    line = " ".join(text[: 4 * MAX_CHARACTERS].split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]} …"


def format_value(value: Any) -> str:
    """Return a value as one line of text. Numbers are rounded, and items are separated by commas."""
    if isinstance(value, str):
        return clip(value)
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, Iterable):
        return clip(", ".join(map(format_value, value))) or "nothing"
    if value is None or isinstance(value, bool | np.bool_):
        return str(value)
    if np.isnan(value):
        return "NaN"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return format_number(float(value))


def describe_with_type(value: Any) -> str:
    """Describe, on one line, a value that has an unexpected type or shape, such as "'so' (str)"."""
    name = clip(type(value).__name__)
    if value is None or value is ...:
        return "None" if value is None else "..."
    if is_tensor(value) or isinstance(value, np.ndarray):
        return f"{'a tensor' if is_tensor(value) else 'an array'} of shape {tuple(value.shape)}"
    if callable(value):
        return f"the function {clip(str(getattr(value, '__name__', name)))}"
    if isinstance(value, list | tuple) and any(hasattr(part, "shape") for part in value):
        return f"a {name} of {len(value)} parts"
    text = reprlib.repr(value)
    if text.startswith("<") or " at 0x" in text:  # an address, which changes from run to run
        return f"something of type {name}"
    return f"{clip(text)} ({name})"
