"""The base class of interactive views.

A notebook shows a view live while a kernel runs, and otherwise as a picture. A view can also be saved as a
page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from helpers.drawing import outputs
from helpers.stepper import page, script
from helpers.stepper.format import VIEW
from helpers.stepper.still import Still, still_name

if TYPE_CHECKING:
    from anywidget import AnyWidget


def check_one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Raise ValueError unless `value` is one of the known values of the option called `name`."""
    known = [*dict.fromkeys(known)]
    if value not in known:
        raise ValueError(f"got {name}={value!r}, expected one of {known}")


class View(ABC):
    """An interactive view. Python passes data and options once; then the view runs in the browser."""

    view: ClassVar[str]  # the name of this type of view in js/mount.ts
    file: ClassVar[Path | None] = None  # a file that the view runs, such as a model's weights

    @property
    @abstractmethod
    def data(self) -> str:
        """What the view shows, as JSON."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The view's initial state."""

    @property
    def still(self) -> Still | None:
        """The still that readers without a kernel see, or None if none was taken for the current data."""
        return Still.load(still_name(self.data, page.front_end_options(self), self._bytes))

    @property
    def _bytes(self) -> bytes:
        return self.file.read_bytes() if self.file else b""

    @property
    def run_hint(self) -> str:
        """A sentence that tells readers to run the cell if the view is not running yet."""
        return str(VIEW["not run"][self.view])

    @cached_property
    def widget(self) -> AnyWidget:
        """The live widget, created on first use."""
        return _widget_class()(data=self.data, options=page.front_end_options(self), file=self._bytes)

    def save_html(self, path: str | Path) -> None:
        """Write the view as an HTML page that needs neither a network nor a kernel.

        While a reader uses the page, the page's address contains the state of the view.

        Raises:
            FileNotFoundError: the folder does not exist.
        """
        text = page.build_page("Watch It Decode", [page.Section(view=self)])
        Path(path).write_text(text, encoding="utf-8")

    def _ipython_display_(self) -> None:
        still, asked = self.still, f"<p>{escape(self.run_hint)}</p>"
        if still:
            about = {"image/png": {"width": still.width, "alt": still.alt}}
            outputs.show_with_fallback(
                still.png, about, still.caption_html() + asked, self.widget, repr(self)
            )
        else:
            outputs.show_with_fallback(None, {}, asked, self.widget, repr(self))


@cache
def _widget_class() -> type[AnyWidget]:
    # Not at the top: importing anywidget takes longer than all else that a notebook needs at first.
    import traitlets
    from anywidget import AnyWidget

    class ViewWidget(AnyWidget):
        """The widget model of an interactive view. The view's state stays in the browser."""

        _esm = script.widget_module()
        _css = script.stylesheet()
        data = traitlets.Unicode().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)
        file = traitlets.Bytes().tag(sync=True)

        def __repr__(self) -> str:
            return "ViewWidget()"

    return ViewWidget
