"""How a record is written: dataclasses as JSON objects, tuples as lists, before them a format and a version.

`FORMAT.md` shows one, `schema.json` says it to machines. Other keys are ignored.
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

VERSION = 3  # of every format; js/trace.ts and schema.json say it too


class TraceError(ValueError):
    """A trace that cannot be right."""


class Document:
    """A dataclass that is a record of its own."""

    FORMAT = ""

    def to_json(self) -> str:
        """Return the JSON form as one compact line."""
        whole = {"format": self.FORMAT, "version": VERSION, **_plain(self)}
        return json.dumps(whole, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build a record from JSON text.

        Raises:
            TraceError: it is cut off, no JSON, of another format or version; a field is missing; or fields
                contradict each other: see `check`.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(
                f"no complete JSON ({error}); expected a trace: if cut off, save it again"
            ) from None
        found = [data.get("format"), data.get("version")] if isinstance(data, dict) else []
        if found != [cls.FORMAT, VERSION]:
            raise TraceError(
                f"got format and version {found}; expected {[cls.FORMAT, VERSION]}: record it again"
            )
        try:
            record = _build(cls, data)
            record.check()
        except TraceError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise TraceError(
                f"a field is missing or of another kind ({error}); save or record it again"
            ) from None
        return record

    def check(self) -> None:
        """Raise TraceError for a number that names nothing that is there, or a list of the wrong length."""

    def save(self, path: str | Path) -> None:
        """Write the JSON form to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote. OSError if it cannot be read, otherwise errors as in `from_json`."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise TraceError(f"{path}: {error}") from None


def check_names(what: str, named: Iterable[int], n: int) -> None:
    """Raise TraceError unless each number names one of n things, from 0."""
    for number in named:
        if not 0 <= number < n:
            raise TraceError(f"{what} {number:,} is named, and there are {n:,}; save or record it again")


def check_length(what: str, n: int, expected: int) -> None:
    """Raise TraceError unless a list has as many entries as what it is about."""
    if n != expected:
        raise TraceError(f"{n:,} {what} came in; expected {expected:,}: save or record it again")


def _plain(x: Any) -> Any:
    """What stands in JSON for a dataclass, or for a row of attention weights."""
    if isinstance(x, np.ndarray):
        return base64.b64encode(x.astype("<u2").tobytes()).decode()
    plain = {f.name: getattr(x, f.name) for f in fields(x)}
    if "weights" in plain:
        plain["weights"] = {"encoding": "u16-base64", "rows": plain["weights"]}
    return plain


def _build(kind: Any, data: Any) -> Any:
    """Rebuild a value of an annotated type from its JSON form; a field that has a default may be missing."""
    parts, origin = get_args(kind), get_origin(kind) or kind
    if origin is types.UnionType:  # something or nothing
        return None if data is None else _build(parts[0], data)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        there = [f.name for f in fields(kind) if f.name in data]
        return kind(**{name: _build(hints[name], data[name]) for name in there})  # type: ignore[operator]
    if kind is np.ndarray:  # a row of attention weights
        return np.frombuffer(base64.b64decode(data), "<u2")
    if origin is dict:
        data = data["rows"] if parts[1] is np.ndarray else data
        return {key: _build(parts[1], item) for key, item in data.items()}
    if origin is list:
        return [_build(parts[0], item) for item in data]
    if origin is tuple:
        return tuple(_build(part, item) for part, item in zip(parts, data, strict=True))
    return data
