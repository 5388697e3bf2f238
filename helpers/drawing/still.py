"""What stands for a live view where nothing runs: a picture and, in text beneath it, its numbers."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from helpers.drawing import outputs
from helpers.drawing.canvas import EDGE, Sheet, drawn, png
from helpers.drawing.tables import Table

WIDTH = 424  # CSS px: in the 360 that a phone leaves for a picture, the smallest letters are still 11 high


@dataclass(frozen=True)
class Still:
    """A picture of a view, for a notebook that is not run, and for a page without scripts."""

    draw: Callable[[Sheet], None]
    alt: str  # what it says, for readers who do not see it; plain text
    sentences: Sequence[str]  # beneath it, with the numbers that it shows; plain text
    width: int = WIDTH  # of the sheet, CSS px
    table: Table | None = None  # of more numbers, over the sentences

    def figure(self) -> Figure:
        """Return the picture as a figure of matplotlib's."""
        return drawn(self.draw, self.width, smooth=False)

    @property
    def numbers(self) -> str:
        """The table and the sentences, as HTML."""
        table = self.table._repr_html_() if self.table else ""
        return table + "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)

    def beneath(self) -> str:
        """Return what stands under the picture, as HTML."""
        fold = f"<summary>The picture in words</summary>{html.escape(self.alt)}"
        return f'{self.numbers}<details style="font-size:90%">{fold}</details>'

    def html(self) -> str:
        """Return picture and numbers, for a page of its own."""
        source = f"data:image/png;base64,{base64.b64encode(png(self.figure())).decode()}"
        image = f'<img alt="{html.escape(self.alt)}" width="{self.width + 2 * EDGE}" src="{source}">'
        return f"{image}{self.beneath()}"

    def show(self, widget: Any, text: str, invitation: str = "") -> None:
        """Emit the outputs of a cell: the picture, what stands under it, and the widget in their place.

        The plain `text` is the same in every run; `invitation` says what to do where no widget runs yet.
        """
        asked = f"<p>{html.escape(invitation)}</p>" if invitation else ""
        picture = {"image/png": {"width": self.width + 2 * EDGE, "alt": self.alt}}
        outputs.show(png(self.figure()), picture, self.beneath() + asked, widget, text)
