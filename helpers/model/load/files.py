"""Files of a checkpoint: what may be wrong with one before its content is looked at."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint that is damaged, incomplete, or of a kind that this model cannot run right."""


def check_file(path: Path) -> Path:
    """Return the path. CheckpointError unless it is a file that can be read: opening a pipe would wait."""
    try:
        if not path.is_fifo():
            path.open("rb").close()
            return path
        told = "a pipe"
    except OSError as error:
        told = error.strerror
    raise CheckpointError(f"{path} cannot be read: {told}; expected a file")


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder; CheckpointError if it may not be listed."""
    try:
        return {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be listed: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; CheckpointError if that is not what it holds, or a key stands twice."""
    text = check_file(path).read_bytes()
    try:
        data = json.loads(text, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; ValueError for a key that stands twice, of which Python takes the last."""
    counted = Counter(key for key, _ in pairs)
    if double := [key for key, n in counted.items() if n > 1]:
        raise ValueError(f"the key {double[0]!r} stands twice")
    return dict(pairs)
