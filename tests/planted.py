"""Plant a bug, and run the ordinary tests that must fail because of it, with pytest.

pytest runs these tests as usual, with their fixtures and parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import pytest
from hypothesis import Phase, settings

Plant = Callable[[pytest.MonkeyPatch], object]

# What a plant that does not fit its place raises: such a crash says nothing of the bug, so it catches none.
HARNESS = (TypeError, AttributeError, NameError, ImportError, SyntaxError)
QUIET = "-o addopts= --import-mode=importlib -q --no-header --no-summary --tb=no".split()
QUIET += [f"-pno:{name}" for name in "cacheprovider unraisableexception threadexception nbval xdist".split()]
SETTINGS = "_hypothesis_internal_use_settings"  # where a test keeps them


@dataclass
class Bug:
    """A bug, with the function that plants it and the tests that must fail when it is planted."""

    name: str
    plant: Plant
    caught_by: list[Callable[..., Any]]

    def missed_by(self) -> list[str]:
        """Plant the bug, run its tests, and return the names of those that do not catch it.

        A test catches the bug if a case of it fails with an exception that is not one of HARNESS.
        """
        nodes = [f"{inspect.getfile(inspect.unwrap(test))}::{test.__name__}" for test in self.caught_by]
        with pytest.MonkeyPatch.context() as patch:
            caught = Caught(patch)
            self.plant(patch)
            pytest.main([*QUIET, *nodes], plugins=[caught])
        return [test.__name__ for test in self.caught_by if test.__name__ not in caught.names]

    def __str__(self) -> str:
        return self.name


@dataclass
class Caught:
    """A pytest plugin that collects the names of tests that failed.

    After a case of a test has failed, the remaining cases of this test are skipped.
    """

    patch: pytest.MonkeyPatch
    names: set[str] = field(default_factory=set)

    def pytest_runtest_setup(self, item: Any) -> None:
        if item.originalname in self.names:
            pytest.skip("caught already")
        # The first example that fails is enough: to shrink it takes longer than all else.
        if given := getattr(item.obj, SETTINGS, None):
            first = settings(given, phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
            self.patch.setattr(item.obj, SETTINGS, first)

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        if not issubclass(call.excinfo.type, HARNESS):
            self.names.add(getattr(node, "originalname", ""))


class Planted:
    """The bugs that a test module plants, in order: `@planted("name", [test, …], "where reported")`."""

    def __init__(self) -> None:
        self.bugs: list[Bug] = []

    def __call__(
        self, name: str, caught_by: list[Callable[..., Any]], reported: str = "", of: Any = None
    ) -> Callable[..., Any]:
        """Return a decorator that registers a bug.

        Args:
            name: the name of the bug.
            caught_by: the tests that must fail when it is planted.
            reported: where a bug of a real project was reported. This is only for readers of the code.
            of: the function that the bug replaces. If given, the decorated function is called instead of it;
                see `instead`. If None, the decorated function plants the bug.
        """

        def keep(*plants: Callable[..., Any]) -> Callable[..., Any]:
            several = plants if of is None else [instead(of, do) for do in plants]
            self.bugs.append(Bug(name, lambda patch: [plant(patch) for plant in several], caught_by))
            return plants[0]

        return keep


def instead(function: Any, do: Callable[..., Any]) -> Plant:
    """Return a function that plants a bug: calls of `function` become `do(original function, *arguments)`.

    The function's code object is replaced. Therefore modules that imported the function earlier get the bug.
    """
    function = inspect.unwrap(getattr(function, "fget", function))
    outer = function.__code__.co_freevars  # __class__, where it calls super()

    def plant(patch: pytest.MonkeyPatch) -> None:
        defaults, closure = function.__defaults__, function.__closure__
        old = FunctionType(function.__code__, function.__globals__, argdefs=defaults, closure=closure)
        old.__kwdefaults__ = function.__kwdefaults__
        name, free = f"planted_{id(old)}", ", ".join(outer)
        patch.setitem(function.__globals__, name, partial(do, old))
        new = eval(f"lambda {free}: lambda *given, **named: ({name}(*given, **named), {free})[0]")(*outer)
        patch.setattr(function, "__code__", new.__code__)
        patch.setattr(function, "__defaults__", None)
        patch.setattr(function, "__kwdefaults__", None)

    return plant
