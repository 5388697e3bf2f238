"""How traces are written as JSON: dataclasses as objects, tuples as lists, plus a format and a version.

`FORMAT.md` has an example, and `schema.json` is the schema. Unknown keys are ignored.
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

VERSION = 3  # of all formats; js/trace.ts and schema.json have it too


class TraceError(ValueError):
    """A trace is incomplete or contradicts itself."""


class Document:
    """The base class of traces: a dataclass that can be saved as JSON."""

    FORMAT = ""

    def to_json(self) -> str:
        """Return the trace as JSON, on one line."""
        whole = {"format": self.FORMAT, "version": VERSION, **_to_json(self)}
        return json.dumps(whole, default=_to_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the trace in a JSON text.

        Raises:
            TraceError: the text is incomplete or is not JSON; it has another format or version; a field is
                missing or has the wrong type; or fields contradict each other (see `check`).
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
        """Write the trace to a file as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the trace in a file written by `save`.

        Raises:
            OSError: the file cannot be read.
            TraceError: as in `from_json`.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise TraceError(f"{path}: {error}") from None


def check_indices(name: str, indices: Iterable[int], n: int) -> None:
    """Raise TraceError unless all indices are from 0 to n - 1.

    Args:
        name: what the indices refer to, such as "token", for the error.
    """
    for index in indices:
        if not 0 <= index < n:
            raise TraceError(f"{name} {index:,} is out of range; expected 0 to {n - 1:,}: record it again")


def check_length(name: str, n: int, expected: int) -> None:
    """Raise TraceError unless `n` equals `expected`.

    Args:
        name: what was counted, for the error.
    """
    if n != expected:
        raise TraceError(f"got {n:,} {name}; expected {expected:,}: save or record it again")


def _to_json(x: Any) -> Any:
    """Convert a dataclass or an array of attention weights to a value that JSON can represent."""
    if isinstance(x, np.ndarray):
        return base64.b64encode(x.astype("<u2").tobytes()).decode()
    items = {f.name: getattr(x, f.name) for f in fields(x)}
    if "weights" in items:
        items["weights"] = {"encoding": "u16-base64", "rows": items["weights"]}
    return items


def _from_json(cls: Any, data: Any) -> Any:
    """Return JSON data as a value of the annotated type `cls`. A field that has a default may be missing."""
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
