"""Write traces as JSON, and read them.

Dataclasses are written as objects and tuples as lists. The outermost object also has the name and the version
of the format. When a trace is read, unknown keys are ignored. `FORMAT.md` has an example, and `schema.json`
is the JSON schema.
"""

from __future__ import annotations

import base64
import json
import types
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np

VERSION = 3  # the version of all trace formats; it must be the same in js/trace.ts and schema.json


class TraceError(ValueError):
    """Raised when a trace is incomplete, has the wrong format, or contradicts itself or the recorded run."""


class Document:
    """The base class of traces, which are dataclasses that can be saved as JSON."""

    FORMAT = ""

    def to_json(self) -> str:
        """Return the trace as a JSON string without line breaks."""
        whole = {"format": self.FORMAT, "version": VERSION, **_to_json(self)}
        return json.dumps(whole, default=_to_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the trace that a JSON string describes.

        Raises:
            TraceError: the string is incomplete or is not JSON; its format or version is not the expected
                one; a field is missing or has the wrong type; or fields contradict each other (see `check`).
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(
                f"no complete JSON ({error}); expected a trace: if cut off, save it again"
            ) from None
        got = [data.get("format"), data.get("version")] if isinstance(data, dict) else []
        if got != [cls.FORMAT, VERSION]:
            raise TraceError(
                f"got format and version {got}; expected {[cls.FORMAT, VERSION]}: record it again"
            )
        try:
            trace = _from_json(cls, data)
            trace.check()
        except TraceError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise TraceError(
                f"a field is missing or has another type ({error}); save or record it again"
            ) from None
        return trace

    def check(self) -> None:
        """Raise TraceError if an index is out of range or a list has the wrong length."""

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON to the file at `path`."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a trace that `save` wrote to the file at `path`.

        Raises:
            OSError: the file cannot be read.
            TraceError: as in `from_json`.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise TraceError(f"{path}: {error}") from None


def check_indices(name: str, indices: Iterable[int], n: int) -> None:
    """Raise TraceError unless each index is from 0 to n - 1.

    Args:
        name: what the indices refer to, such as "token", for the error message.
        indices: the indices to check.
        n: number of valid indices.
    """
    for index in indices:
        if not 0 <= index < n:
            raise TraceError(f"{name} {index:,} is out of range; expected 0 to {n - 1:,}: record it again")


def check_length(name: str, n: int, expected: int) -> None:
    """Raise TraceError unless `n` equals `expected`.

    Args:
        name: what `n` is the number of, such as "targets", for the error message.
        n: the actual number.
        expected: the expected number.
    """
    if n != expected:
        raise TraceError(f"got {n:,} {name}; expected {expected:,}: save or record it again")


def _to_json(x: Any) -> Any:
    """Convert a dataclass, or an array of attention weights, to a value that the `json` module can write."""
    if isinstance(x, np.ndarray):
        return base64.b64encode(x.astype("<u2").tobytes()).decode()
    items = {f.name: getattr(x, f.name) for f in fields(x)}
    if "weights" in items:
        items["weights"] = {"encoding": "u16-base64", "rows": items["weights"]}
    return items


def _from_json(cls: Any, data: Any) -> Any:
    """Convert data read from JSON to a value of the type `cls`.

    A field that has a default value may be missing in the data.
    """
    parts, origin = get_args(cls), get_origin(cls) or cls
    if origin is types.UnionType:  # a type or None
        return None if data is None else _from_json(parts[0], data)
    if is_dataclass(cls):
        hints = get_type_hints(cls)
        names = [f.name for f in fields(cls) if f.name in data]
        return cls(**{name: _from_json(hints[name], data[name]) for name in names})  # type: ignore[operator]
    if cls is np.ndarray:  # a row of attention weights
        return np.frombuffer(base64.b64decode(data), "<u2")
    if origin is dict:
        data = data["rows"] if parts[1] is np.ndarray else data
        return {key: _from_json(parts[1], item) for key, item in data.items()}
    if origin is list:
        return [_from_json(parts[0], item) for item in data]
    if origin is tuple:
        return tuple(_from_json(part, item) for part, item in zip(parts, data, strict=True))
    return data
