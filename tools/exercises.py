"""The exercises of a notebook, by the tags of its cells."""

from __future__ import annotations

from pathlib import Path

import nbformat

ROLES = ("exercise", "check", "solution")


def asked(path: Path) -> dict[str, dict[str, str]]:
    """Return the exercises of a notebook, complete or not: by name and role the source of the cell."""
    found: dict[str, dict[str, str]] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        for tag in cell.metadata.get("tags", []):
            role, _, name = tag.partition("-")
            if role in ROLES:
                assert role not in found.setdefault(name, {}), f"{path.name}: two cells are tagged {tag}"
                found[name][role] = cell.source
    return found
