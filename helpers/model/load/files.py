"""Files of a checkpoint: what may be wrong with one before its content is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint that is damaged, incomplete, or of a kind that this model cannot run right."""


def unsupported(message: str) -> ValueError:
    """Return the error over a model that is another function than ours; `message` says what was expected."""
    return ValueError(f"{message}; or watch it instead, with helpers.recording.hf.watch")


@contextmanager
def reading(path: Path, message: str = "") -> Iterator[None]:
    """Turn any error over what a file holds into a CheckpointError that names it; `message` says more.

    A package that is not installed is no fault of a file: its ImportError, which names it, stays what it is.
    """
    try:
        yield
    except (CheckpointError, ImportError):
        raise
    except Exception as error:
        raise CheckpointError(f"{path}{message}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; CheckpointError if that is not what it holds."""
    with reading(path):
        data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data
