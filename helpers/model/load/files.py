"""Errors of checkpoints, and JSON files read with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint that is damaged, incomplete, or of a type that this model cannot run correctly."""


def unsupported(message: str) -> ValueError:
    """Return the error for a model that computes what ours does not; `message` names what was expected."""
    return ValueError(f"{message}; or watch it instead, with helpers.recording.hf.watch")


@contextmanager
def reading(path: Path, message: str = "") -> Iterator[None]:
    """Turn any error about the content of a file into a CheckpointError with its path and `message`.

    A package that is not installed is not a fault of the file: its ImportError passes through.
    """
    try:
        yield
    except (CheckpointError, ImportError):
        raise
    except Exception as error:
        raise CheckpointError(f"{path}{message}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; CheckpointError if it holds anything else."""
    with reading(path):
        data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data
