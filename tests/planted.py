"""Plant bugs one by one, and run by hand the ordinary tests that a table says catch them."""

from __future__ import annotations

import importlib
import inspect
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]

# What a plant that does not fit its place raises: such a crash says nothing of the bug, so it catches none.
HARNESS = (TypeError, AttributeError, NameError, ImportError)


class Planted:
    """A table of bugs and the tests that catch them, with the code that plants each bug.

    Args:
        text: a docstring whose third paragraph is the table: a bug, its reports in brackets, and under it,
            indented, the tests that catch it, each as "module.name" without the `test_`.
        modules: the module that each name before the point stands for.
        fixtures: fixtures that the tests ask for beside `monkeypatch`, made from an empty folder.
    """

    def __init__(
        self, text: str | None, modules: Mapping[str, str], **fixtures: Callable[[Path], Any]
    ) -> None:
        self.caught_by = table(text or "")
        self.modules = modules
        self.fixtures = fixtures
        self.planted: dict[str, Plant] = {}
        self.unplanted: dict[str, BaseException | None] = {}

    def plants(self, bug: str) -> Callable[[Plant], Plant]:
        """Return a decorator that keeps a function as the one that plants this bug."""

        def keep(plant: Plant) -> Plant:
            self.planted[bug] = plant
            return plant

        return keep

    def failing_anyway(self, bug: str) -> list[str]:
        """Name the tests under this bug that fail without any planted bug."""
        names = self.caught_by[bug]
        for name in names:
            if name not in self.unplanted:
                self.unplanted[name] = self.failure_of(name)
        return [f"{name}: {self.unplanted[name]!r}" for name in names if self.unplanted[name] is not None]

    def missed_by(self, bug: str) -> list[str]:
        """Plant this bug, and name the tests under it that pass with it, or only crash in the harness."""
        with pytest.MonkeyPatch.context() as patch:
            self.planted[bug](patch)
            found = {name: self.failure_of(name) for name in self.caught_by[bug]}
        return [
            f"{name}: {error!r}"
            for name, error in found.items()
            if error is None or isinstance(error, HARNESS)
        ]

    def failure_of(self, name: str) -> BaseException | None:
        """Run an ordinary test, all its cases; the first failure, or None."""
        module, _, rest = name.partition(".")
        test = getattr(importlib.import_module(self.modules[module]), f"test_{rest}")
        wanted = inspect.signature(test).parameters
        for arguments in cases(test):
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                made = {name: make(Path(folder)) for name, make in self.fixtures.items() if name in wanted}
                given = made | ({"monkeypatch": patch} if "monkeypatch" in wanted else {})
                try:
                    test(**arguments, **given)
                except (Exception, pytest.fail.Exception) as error:
                    return error
        return None


def table(text: str) -> dict[str, list[str]]:
    """Read the table of a docstring: bug -> names of the tests under it."""
    caught: dict[str, list[str]] = {}
    for line in text.split("\n\n")[2].splitlines():
        if line.startswith("    "):
            caught[list(caught)[-1]].append(line.strip())
        else:
            caught[line.split(" [")[0]] = []
    return caught


def cases(test: Any) -> Iterator[dict[str, Any]]:
    """Yield the arguments of every case of a test: the product of its parametrize marks."""
    axes = []
    for mark in [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]:
        names, values = mark.args
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        rows = [(value,) if len(names) == 1 else value for value in values]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in itertools.product(*axes):
        yield {name: value for arguments in chosen for name, value in arguments.items()}
