"""What runs in the page: live in a notebook, as a picture where nothing runs, on a page of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from helpers.drawing.still import Still
from helpers.stepper import page, script
from helpers.stepper.format import VIEW

if TYPE_CHECKING:
    from anywidget import AnyWidget


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Raise ValueError unless an option of a view has one of these values."""
    known = [*dict.fromkeys(known)]
    if value not in known:
        raise ValueError(f"got {name}={value!r}, expected one of {known}")


class View(ABC):
    """An interactive view: Python passes its data and options once, and the browser does the rest."""

    view: ClassVar[str]  # its name in js/mount.ts
    file: ClassVar[Path | None] = None  # what it runs, such as a model's weights

    @property
    @abstractmethod
    def data(self) -> str:
        """What is shown, as JSON."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Its initial state."""

    @abstractmethod
    def still(self) -> Still:
        """Return what readers see where nothing runs."""

    @property
    def invitation(self) -> str:
        """What to do if the view is not running yet."""
        return str(VIEW["not run"][self.view])

    @cached_property
    def widget(self) -> AnyWidget:
        """The live form, made on first use."""
        file = self.file.read_bytes() if self.file else b""
        return _widget_class()(data=self.data, options=page.options(self), file=file)

    def save_html(self, path: str | Path) -> None:
        """Write the view as a page that needs no network and no kernel; its address holds its state.

        Raises:
            FileNotFoundError: the folder does not exist.
        """
        text = page.build("Watch It Decode", [page.Section(view=self)])
        Path(path).write_text(text, encoding="utf-8")

    def _ipython_display_(self) -> None:
        self.still().show(self.widget, repr(self), self.invitation)


@cache
def _widget_class() -> type[AnyWidget]:
    # Not at the top: importing anywidget takes longer than all else that a notebook needs at first.
    import traitlets
    from anywidget import AnyWidget

    class ViewWidget(AnyWidget):
        """The model of a live view; its state stays in the browser."""

        _esm = script.widget_module()
        _css = script.stylesheet()
        data = traitlets.Unicode().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)
        file = traitlets.Bytes().tag(sync=True)

        def __repr__(self) -> str:
            return "ViewWidget()"

    return ViewWidget
