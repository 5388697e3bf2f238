"""What the checkers of several notebooks need: tensors go in as copies, and come out with a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check import cases
from helpers.check.cases import Case
from helpers.check.result import NotRightError, NotSolvedError, describe


def call(function: Any, case: Case, todo: str, none: Any = None, gradients: bool = False) -> Any:
    """Call the reader's function as `cases.call` does, with copies of the arguments, tensors among them.

    Args:
        none: what to return for None where that is an answer.
        gradients: whether the function may ask for gradients.

    Raises:
        NotSolvedError, NotRightError: as in `cases.call`.
    """
    if isinstance(function, Tensor):
        raise NotRightError(f"got {say(function)}; expected a function: pass its name, without ().")
    cases.check_function(function, todo)
    copies = [clone(arg) for arg in case.args]

    def run() -> Any:
        with torch.set_grad_enabled(gradients):
            value = function(*copies)
        if value is None and cases.is_stub(function):
            raise NotSolvedError(todo)
        return none if value is None else value

    value = cases.call(run, Case(case.label, (), case.trap), todo)
    for n, (before, after) in enumerate(zip(case.args, copies, strict=True)):
        if not unchanged(before, after):
            raise cases.written_to(n, case.label)
    return value


def clone(value: Any) -> Any:
    """Copy a tensor, a list of them, or a dict; leave anything else as it is."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, list):
        return [clone(part) for part in value]
    return dict(value) if isinstance(value, dict) else value


def unchanged(before: Any, after: Any) -> bool:
    """Whether a tensor, a list or a dict is still the same; anything else counts as such."""
    if isinstance(before, Tensor):
        return alike(before, after)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(unchanged, before, after))
    return not isinstance(before, int | float | dict) or bool(before == after)


def alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape and the same numbers."""
    return a.shape == b.shape and torch.equal(a, b)


def say(value: Any) -> str:
    """Say what kind of thing a reader handed over, tensors by their shape."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple) and any(isinstance(part, Tensor) for part in value):
        return f"a {type(value).__name__} of {len(value)} parts"
    return describe(value)


def read_tensor(
    value: Any,
    label: str,
    shape: tuple[int, ...],
    hints: Mapping[tuple[int, ...], str] | None = None,
    what: str = "",
) -> Tensor:
    """Return what the reader's function gave if it is a tensor of this shape, or raise NotRightError.

    Args:
        hints: what a wrong shape most likely means.
        what: the name of this one, where the function gives several.
    """
    if not isinstance(value, Tensor):
        named = f"{what} {say(value)}".strip()
        raise NotRightError(f"{label} gives {named}; expected a tensor of shape {shape}.")
    got = tuple(value.shape)
    if got != shape:
        message = f"{label} gives {what or 'a tensor'} of shape {got}; expected {shape}."
        raise NotRightError(message, (hints or {}).get(got, ""))
    if value.is_complex():
        raise NotRightError(f"{label} gives complex numbers; expected plain ones.")
    if value.is_meta:
        raise NotRightError(f"{label} gives a tensor on the device meta, which holds no numbers.")
    dense = value.detach().cpu().to_dense()
    return dense.float() if dense.dtype in (torch.bfloat16, torch.float16) else dense


def read_number(value: Any, label: str) -> float:
    """Return what the reader's function gave if it is one number, in a tensor or not, or raise."""
    if isinstance(value, Tensor) and not value.ndim and not value.is_meta:
        value = value.item()
    if isinstance(value, Tensor):
        raise NotRightError(f"{label} gives {say(value)}; expected one number.")
    return cases.read_number(value, Case(label, ()))


def read_bools(value: Any, label: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return what the reader's function gave if it is bools of this shape, a tensor or an array, or raise."""
    if isinstance(value, list | tuple):
        value = cases_array(value)
    if isinstance(value, np.ndarray) and value.dtype == bool:
        value = torch.from_numpy(value)
    table = read_tensor(value, label, shape)
    if table.dtype != torch.bool:
        kind = str(table.dtype).removeprefix("torch.")
        raise NotRightError(f"{label} gives numbers ({kind}); expected True and False.")
    return table.numpy()


def cases_array(value: Sequence[Any]) -> Any:
    """Return a list of bools, or of tensors of one bool each, as an array; anything else as it came."""
    try:
        array = np.array([np.asarray(part) for part in value])
    except (TypeError, ValueError, RuntimeError):
        return value
    return array if array.dtype == bool else value


def drawn(seed: int, *shape: int) -> Tensor:
    """Return random float32 numbers that are the same each time, torch's own generator left alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
