"""The base class of explorers: controls and a picture, a reset button, a still picture, and accessibility."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import anywidget
import ipywidgets as widgets  # type: ignore[import-untyped]

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

# What ipywidgets lack: JupyterLab takes letters typed on a slider for commands ("d d" deletes the cell),
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
    """An invisible widget that makes the widgets next to it accessible. See ACCESSIBILITY."""

    _esm = ACCESSIBILITY


class Explorer:
    """Controls with a picture in HTML below them. A subclass defines the controls and draws the picture.

    As the last expression of a cell, it shows a picture of the initial settings and its numbers. While a
    kernel runs, it shows the live widget instead.
    """

    title: str
    knobs: Callable[[], dict[str, Any]]  # returns the controls, ipywidgets, by the name of their setting
    say: Callable[..., str]  # returns one sentence, in HTML, on what these settings do
    grid: Callable[..., Any]  # returns the picture for these settings: html, draw, in_words and a note

    def draw(self, **settings: Any) -> str:
        """Return the picture for these settings as HTML."""
        return self.grid(**settings).html()

    def still(self) -> Still:
        """Return the picture of the initial settings, for readers without a kernel."""
        knobs = self.knobs()
        settings = {name: knob.value for name, knob in knobs.items()}
        chosen = "; ".join(f"{knob.description}: {_shown(knob)}" for knob in knobs.values())
        bars = self.grid(**settings)
        sentence = [f"Set to {chosen}.", _plain(self.say(**settings)), _plain(bars.note)]
        return Still(bars.draw, bars.in_words(), sentence)

    @cached_property
    def widget(self) -> Any:
        """The live widget, created on first use: controls, a reset button, the sentence and the picture."""
        knobs = self.knobs()
        start = {name: knob.value for name, knob in knobs.items()}
        whole = widgets.Layout(width="100%", margin="0")
        output, picture = widgets.HTML(layout=whole), widgets.HTML(layout=whole)
        output.add_class("wid-said")
        reset = widgets.Button(description="Reset", tooltip="Back to the first settings")

        def redraw(_: Any = None) -> None:
            settings = {name: knob.value for name, knob in knobs.items()}
            output.value = f'<div class="wid-explorer">{self.say(**settings)}</div>'
            picture.value = f'{STYLE}<div class="wid-explorer">{self.draw(**settings)}</div>'

        def back(_: Any) -> None:
            for name, knob in knobs.items():
                knob.value = start[name]

        for knob in knobs.values():
            knob.observe(redraw, names="value")
        reset.on_click(back)
        redraw()
        hidden = Accessibility(layout=widgets.Layout(display="none"))
        parts = [*knobs.values(), reset, output, picture, hidden]
        box = widgets.VBox(parts, layout=widgets.Layout(width="100%"))
        box.add_class("wid-knobs")
        return box

    def __repr__(self) -> str:
        return self.title

    def _ipython_display_(self) -> None:
        self.still().show(self.widget, repr(self))


def knob(kind: str, label: str, **settings: Any) -> Any:
    """Return a control of ipywidgets with a label, which is also its tooltip.

    `kind` is the name of the control's class, such as "IntSlider"; `settings` are more arguments of the
    class.
    """
    slider = getattr(widgets, kind)
    tooltip = "tooltip" if "tooltip" in slider.class_trait_names() else "description_tooltip"  # ipywidgets 7
    return slider(
        description=label,
        layout=widgets.Layout(width="100%", max_width="460px"),
        style={"description_width": "104px"},
        **{tooltip: label},
        **settings,
    )


def pick(label: str, options: Iterable[int], value: int) -> Any:
    """Return a slider over a few whole numbers, shown with thousands separators."""
    return knob("SelectionSlider", label, options=[(f"{x:,}", x) for x in options], value=value)


def _shown(knob: Any) -> str:
    """Return a control's value as text, as the control shows it."""
    if isinstance(knob.value, list | str):  # tags, or text that was typed
        return knob.value if isinstance(knob.value, str) else " ".join(knob.value)
    written = {value: text for text, value in getattr(knob, "options", ())}
    return written[knob.value] if written else f"{knob.value:g}"


def _plain(text: str) -> str:
    """Return the text of HTML, without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()
