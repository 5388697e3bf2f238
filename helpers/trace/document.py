"""How a record is written: dataclasses as JSON objects, tuples as lists, before them a format and a version.

`FORMAT.md` shows one, `schema.json` says it to machines. Other keys are ignored.
"""

from __future__ import annotations

import base64
import json
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np

VERSION = 3  # of every format; js/trace.js and schema.json say it too


class TraceError(ValueError):
    """A trace that cannot be right; the message names the field."""


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
            TraceError: it is cut off, no JSON, of another format or version, or a field is missing or of
                another kind; the message names it. What holds between the fields is not looked into.
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
        return _build(cls, data, "trace")

    def save(self, path: str | Path) -> None:
        """Write the JSON form to a file, whole or not at all. OSError if its folder is not there."""
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote. OSError if it cannot be read, otherwise errors as in `from_json`."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise TraceError(f"{path}: {error}") from None


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all. FileNotFoundError if its folder is not there."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}; make it first, or save elsewhere")
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _plain(x: Any) -> Any:
    """What stands in JSON for a dataclass, or for a row of attention weights."""
    if isinstance(x, np.ndarray):
        return base64.b64encode(x.astype("<u2").tobytes()).decode()
    plain = {f.name: getattr(x, f.name) for f in fields(x)}
    if "weights" in plain:
        plain["weights"] = {"encoding": "u16-base64", "rows": plain["weights"]}
    return plain


def _build(kind: Any, data: Any, path: str) -> Any:
    """Rebuild a value of an annotated type from its JSON form; TraceError has the path of what is wrong."""
    parts, origin = get_args(kind), get_origin(kind) or kind
    try:
        if origin is types.UnionType:  # something or nothing
            return None if data is None else _build(parts[0], data, path)
        if is_dataclass(kind):
            hints = get_type_hints(kind)  # a field that has a default may be missing
            names = [
                f.name for f in fields(kind) if f.name in data or f.default is f.default_factory is MISSING
            ]
            return kind(**{name: _build(hints[name], data[name], f"{path}.{name}") for name in names})  # type: ignore[operator]
        if kind == dict[str, np.ndarray]:
            data = data["rows"]
        if kind is np.ndarray:  # a row of attention weights
            return np.frombuffer(base64.b64decode(data, validate=True), "<u2")
        wanted: Any = {tuple: (list,), float: (float, int)}.get(origin, (origin,))  # what JSON has for it
        if kind is not Any and type(data) not in wanted:
            raise TypeError(f"a {type(data).__name__}")
        if origin is dict:
            return {key: _build(parts[1], item, f"{path}[{key!r}]") for key, item in data.items()}
        if origin in (list, tuple):
            each = zip(parts if origin is tuple else parts * len(data), data, strict=True)
            return origin(_build(part, item, f"{path}[{n}]") for n, (part, item) in enumerate(each))
        return data
    except TraceError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        got = f"no field {error}" if isinstance(error, KeyError) else f"{str(data)[:80]} ({error})"
        name = getattr(kind, "__name__", kind)
        raise TraceError(f"{path}: got {got}; expected {name}: save or record it again") from None
