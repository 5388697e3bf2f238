"""The still picture, with its values as text, that readers without a kernel see instead of an explorer."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from helpers.drawing import outputs
from helpers.drawing.canvas import EDGE, WIDTH, Sheet, draw_figure, figure_png


@dataclass(frozen=True)
class Still:
    """An explorer's picture for its initial settings, shown in a notebook that is not running."""

    draw: Callable[[Sheet], None]
    alt: str  # the text alternative; plain text
    sentences: Sequence[str]  # shown below the picture, with its values; plain text

    def figure(self) -> Figure:
        """Return the picture as a matplotlib figure."""
        return draw_figure(self.draw, antialiased=False)

    @property
    def sentences_html(self) -> str:
        """The sentences, as HTML paragraphs."""
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)

    def caption_html(self) -> str:
        """Return the content below the picture: the sentences and the folded text alternative, as HTML."""
        fold = f"<summary>The picture in words</summary>{html.escape(self.alt)}"
        return f'{self.sentences_html}<details style="font-size:90%">{fold}</details>'

    def show(self, widget: Any, text: str) -> None:
        """Show the outputs of a cell: the picture, its caption, and the live widget that replaces both.

        Args:
            widget: the live widget.
            text: the plain-text form, which must be the same in every run.
        """
        picture = {"image/png": {"width": WIDTH + 2 * EDGE, "alt": self.alt}}
        outputs.show_with_fallback(figure_png(self.figure()), picture, self.caption_html(), widget, text)
