"""Plant a bug and let pytest run the ordinary tests that must notice it, fixtures, parameters and all."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType
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
    """A bug: how it is planted, and the tests that must fail with it."""

    name: str
    plant: Plant
    caught_by: list[Callable[..., Any]]

    def missed_by(self) -> list[str]:
        """Plant it, run its tests, and name those that pass, or only crash in the harness."""
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
    """A plugin of pytest: names of tests of which a case has failed; their other cases are left out."""

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
    """The bugs of a file, in order: `@planted("name", [test, …], "where reported")`."""

    def __init__(self) -> None:
        self.bugs: list[Bug] = []

    def __call__(
        self, name: str, caught_by: list[Callable[..., Any]], reported: str = "", of: Any = None
    ) -> Callable[..., Any]:
        """Keep a function that plants a bug, or several; with `of`, one that is called instead of it.

        `reported` says where a real project had the bug, for the reader.
        """

        def keep(*plants: Callable[..., Any]) -> Callable[..., Any]:
            several = plants if of is None else [instead(of, do) for do in plants]
            self.bugs.append(Bug(name, lambda patch: [plant(patch) for plant in several], caught_by))
            return plants[0]

        return keep


def instead(function: Any, do: Callable[..., Any]) -> Plant:
    """Return a plant: who calls the function, imported when ever, gets do(the old one, *arguments)."""
    function = inspect.unwrap(getattr(function, "fget", function))

    def plant(patch: pytest.MonkeyPatch) -> None:
        old = FunctionType(function.__code__, function.__globals__, argdefs=function.__defaults__)
        old.__kwdefaults__ = function.__kwdefaults__
        name = f"planted_{id(old)}"
        patch.setitem(function.__globals__, name, partial(do, old))
        patch.setattr(function, "__code__", eval(f"lambda *given, **named: {name}(*given, **named)").__code__)
        patch.setattr(function, "__defaults__", None)
        patch.setattr(function, "__kwdefaults__", None)

    return plant


def edit(function: Any, *changes: str) -> Plant:
    """Return a plant that changes a function's source: old text, new text, old, new, …

    The function keeps its identity, so that whoever imported it runs the changed one. AssertionError where a
    text does not stand exactly once: the code has moved on, and the bug must follow.
    """
    function = inspect.unwrap(getattr(function, "fget", function))
    return lambda patch: patch.setattr(function, "__code__", edited(function, changes))


def edited(function: Any, changes: tuple[str, ...]) -> CodeType:
    """Return the code of a function whose source has been changed."""
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {function.__qualname__}"
        source = source.replace(old, new)
    name, outer = function.__name__, ", ".join(function.__code__.co_freevars)
    outside = f"def outside({outer}):\n global {name}\n{textwrap.indent(source, ' ')}"
    flags = __future__.annotations.compiler_flag
    made = compile(outside, inspect.getfile(function), "exec", flags=flags, dont_inherit=True)
    return next(code for code in codes(made) if code.co_name == name)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects within a code object, the outer ones first."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from codes(inner)
