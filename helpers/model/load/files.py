"""The error for checkpoints that cannot be loaded, and a function that reads JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CheckpointError(ValueError):
    """Raised when a checkpoint is damaged or incomplete, or when this package cannot run it correctly."""


def unsupported_error(message: str) -> ValueError:
    """Return an error for a model with features that this package does not support.

    Args:
        message: what was found and what was expected.
    """
    return ValueError(f"{message}; or watch it instead, with helpers.recording.hf.watch")


@contextmanager
def checkpoint_errors(path: Path, message: str = "") -> Iterator[None]:
    """Turn any error in the `with` block into a CheckpointError that names a file.

    A CheckpointError is left unchanged. So is an ImportError, because a missing package is not a fault of the
    file.

    Args:
        path: path of the file, with which the new message begins.
        message: what follows the path in the new message, before that of the original error.
    """
    try:
        yield
    except (CheckpointError, ImportError):
        raise
    except Exception as error:
        raise CheckpointError(f"{path}{message}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raise CheckpointError if the file is missing or has anything else.
    """
    with checkpoint_errors(path):
        data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data
