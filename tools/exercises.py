"""Find the exercises of a notebook by the tags of its cells."""

from __future__ import annotations

from pathlib import Path

import nbformat

ROLES = ("exercise", "check", "solution")


def exercise_sources(path: Path) -> dict[str, dict[str, str]]:
    """Return the sources of a notebook's exercise cells, as {exercise: {role: source}}.

    The tag of an exercise cell consists of its role, which is one of ROLES, and the name of the exercise. An
    example is `check-generate`.
    """
    exercises: dict[str, dict[str, str]] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        for tag in cell.metadata.get("tags", []):
            role, _, name = tag.partition("-")
            if role in ROLES:
                assert role not in exercises.setdefault(name, {}), f"{path.name}: two cells are tagged {tag}"
                exercises[name][role] = cell.source
    return exercises
