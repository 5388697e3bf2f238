"""The base class of explorers.

An explorer has controls, a reset button, and a picture that changes with the controls. A still picture is
shown where no kernel runs.
"""

from __future__ import annotations

import html
import re
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Protocol

import anywidget
import ipywidgets as widgets  # type: ignore[import-untyped]

from helpers.drawing.canvas import Sheet
from helpers.drawing.palette import PALETTE
from helpers.drawing.still import Still

_LIGHT, _DARK = (
    "".join(f"--wid-{name}: {PALETTE[name][theme]}; " for name in ("generated", "soft", "ring"))
    for theme in (0, 1)
)
STYLE = (
    f"""<style>
.wid-explorer {{ {_LIGHT}--wid-ink: var(--jp-ui-font-color1, {PALETTE["ink"][0]}); }}
body[data-jp-theme-light="false"] .wid-explorer, body.vscode-dark .wid-explorer,
html[theme="dark"] .wid-explorer {{ {_DARK}}}
"""
    + """.wid-explorer { max-width: 600px; padding: 2px 4px; color: var(--wid-ink);
  font: 13px/1.4 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-variant-numeric: tabular-nums; }
.wid-explorer p { margin: 6px 0; }
.wid-explorer .soft { color: var(--wid-soft); }
.wid-explorer .grid { display: grid; grid-template-columns: max-content minmax(40px, 1fr) max-content;
  gap: 2px 8px; align-items: center; margin: 6px 0; }
.wid-explorer .note { grid-column: 2 / -1; margin: -2px 0 4px; }
.wid-explorer .number { text-align: right; white-space: nowrap; }
.wid-explorer .bar { height: 9px; border-radius: 1px; }
.wid-explorer .before { border: 1px solid var(--wid-ring); box-sizing: border-box; }
.wid-explorer .after { background: var(--wid-generated); margin-top: 1px; }
.wid-explorer .word { unicode-bidi: isolate; overflow-wrap: anywhere; max-width: 110px; }
</style>"""
)

# Mends ipywidgets: JupyterLab takes letters typed on a slider for commands ("d d" deletes the cell),
# sliders have no accessible name, a slider of choices reads out its index, and changes are not announced.
ACCESSIBILITY = """
function mend(box) {
  for (const one of box.querySelectorAll("button, [tabindex], [contenteditable]"))
    one.dataset.lmSuppressShortcuts = "true";  // on what has the focus: an ancestor's is looked at too late
  for (const row of box.querySelectorAll(".widget-slider")) {
    const handle = row.querySelector("[role=slider]");
    const shown = row.querySelector(".widget-readout");
    if (!handle || !shown) continue;
    const label = row.querySelector(".widget-label");
    if (label) handle.setAttribute("aria-label", label.textContent);
    if (label) shown.setAttribute("aria-label", `${label.textContent}, type a value`);
    if (handle.getAttribute("aria-valuetext") !== shown.textContent)
      handle.setAttribute("aria-valuetext", shown.textContent);
  }
  box.querySelector(".wid-said")?.setAttribute("aria-live", "polite");
}
function render({ el }) {
  let watch, frame;
  const begin = () => {
    const box = el.closest(".wid-knobs");
    if (!box) { frame = requestAnimationFrame(begin); return; }  // not in the page yet
    watch = new MutationObserver(() => mend(box));
    const what = { subtree: true, childList: true, characterData: true, attributeFilter: ["aria-valuetext"] };
    watch.observe(box, what);
    mend(box);
  };
  begin();
  return () => { watch?.disconnect(); cancelAnimationFrame(frame); };
}
export default { render };
"""


class Accessibility(anywidget.AnyWidget):
    """An invisible widget that makes the widgets next to it accessible; see ACCESSIBILITY."""

    _esm = ACCESSIBILITY


class ExplorerPicture(Protocol):
    """The picture that an explorer shows for its current settings."""

    @property
    def note(self) -> str:
        """A note below the picture, in HTML."""

    def html(self) -> str:
        """Return the picture and the note as HTML."""

    def draw(self, sheet: Sheet) -> None:
        """Draw the picture on a sheet."""

    def in_words(self) -> str:
        """Return the text alternative, as plain text."""


class Explorer(ABC):
    """Controls with a picture below them. A subclass defines the controls and the picture.

    As the last expression of a cell, an explorer shows a still picture for its initial settings, with the
    picture's values as text. While a kernel runs, the live widget is shown instead.
    """

    title: str

    @abstractmethod
    def controls(self) -> dict[str, Any]:
        """Return the controls, which are ipywidgets widgets, by the name of the setting that they control."""

    @abstractmethod
    def sentence_html(self, **settings: Any) -> str:
        """Return one sentence about the effect of the settings, as HTML."""

    @abstractmethod
    def picture(self, **settings: Any) -> ExplorerPicture:
        """Return the picture for the given settings."""

    def picture_html(self, **settings: Any) -> str:
        """Return the picture for the given settings, and its note, as HTML."""
        return self.picture(**settings).html()

    def still(self) -> Still:
        """Return the still picture for the initial settings, which readers without a kernel see."""
        controls = self.controls()
        settings = {name: control.value for name, control in controls.items()}
        chosen = "; ".join(f"{control.description}: {_shown(control)}" for control in controls.values())
        bars = self.picture(**settings)
        sentence = [f"Set to {chosen}.", _plain(self.sentence_html(**settings)), _plain(bars.note)]
        return Still(bars.draw, bars.in_words(), sentence)

    @cached_property
    def widget(self) -> Any:
        """The live widget, created on first use: the controls, a reset button, the sentence, the picture."""
        controls = self.controls()
        start = {name: control.value for name, control in controls.items()}
        whole = widgets.Layout(width="100%", margin="0")
        output, picture = widgets.HTML(layout=whole), widgets.HTML(layout=whole)
        output.add_class("wid-said")
        reset = widgets.Button(description="Reset", tooltip="Back to the first settings")

        def redraw(_: Any = None) -> None:
            settings = {name: control.value for name, control in controls.items()}
            output.value = f'<div class="wid-explorer">{self.sentence_html(**settings)}</div>'
            picture.value = f'{STYLE}<div class="wid-explorer">{self.picture_html(**settings)}</div>'

        def back(_: Any) -> None:
            for name, control in controls.items():
                control.value = start[name]

        for control in controls.values():
            control.observe(redraw, names="value")
        reset.on_click(back)
        redraw()
        hidden = Accessibility(layout=widgets.Layout(display="none"))
        parts = [*controls.values(), reset, output, picture, hidden]
        box = widgets.VBox(parts, layout=widgets.Layout(width="100%"))
        box.add_class("wid-knobs")
        return box

    def __repr__(self) -> str:
        return self.title

    def _ipython_display_(self) -> None:
        self.still().show(self.widget, repr(self))


def labelled_widget(class_name: str, label: str, **arguments: Any) -> Any:
    """Return an ipywidgets control with a label, which is also the tooltip.

    Args:
        class_name: the name of the control's ipywidgets class, such as "IntSlider".
        label: the label.
        arguments: further arguments for the class.
    """
    slider = getattr(widgets, class_name)
    tooltip = "tooltip" if "tooltip" in slider.class_trait_names() else "description_tooltip"  # ipywidgets 7
    return slider(
        description=label,
        layout=widgets.Layout(width="100%", max_width="460px"),
        style={"description_width": "104px"},
        **{tooltip: label},
        **arguments,
    )


def _shown(control: Any) -> str:
    """Return the value of a control, as the text that the control shows."""
    value = control.value
    if isinstance(value, list | str):  # tags, or text that was typed
        return value if isinstance(value, str) else " ".join(value)
    labels = {option: text for text, option in getattr(control, "options", ())}
    return labels[value] if labels else f"{value:g}"


def _plain(text: str) -> str:
    """Return the text content of HTML, without tags and with entities decoded."""
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()
