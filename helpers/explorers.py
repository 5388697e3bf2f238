"""Small explorers with a knob or two: one for the next word, one for what a reply costs.

Each has a static form, a plain table that reads without a kernel, and a live one made of ipywidgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from html import escape
from typing import Any

import anywidget
import ipywidgets as widgets  # type: ignore[import-untyped]
import numpy as np

from helpers import outputs, toy
from helpers.cost import counts
from helpers.sampling import check_logits, keep_top_k, keep_top_p, next_probabilities, softmax
from helpers.tables import Table

DRAWS = 20
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500, 1000, 2000, 5000, 10_000)
SEED = 0

STYLE = """<style>
.wid-explorer { --wid-gen: #8a3a8f; --wid-ink: var(--jp-ui-font-color1, #1b1f24);
  --wid-soft: #57606a; --wid-line: #afb8c1; max-width: 600px; padding: 2px 4px; color: var(--wid-ink);
  font: 13px/1.4 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-variant-numeric: tabular-nums; }
body[data-jp-theme-light="false"] .wid-explorer, body.vscode-dark .wid-explorer,
html[theme="dark"] .wid-explorer { --wid-gen: #d79ade; --wid-soft: #a3adb8; --wid-line: #57606a; }
.wid-explorer p { margin: 6px 0; }
.wid-explorer .soft { color: var(--wid-soft); }
.wid-explorer .grid { display: grid; grid-template-columns: max-content minmax(40px, 1fr) max-content;
  gap: 2px 8px; align-items: center; margin: 6px 0; }
.wid-explorer .grid > .wide { grid-column: 1 / -1; margin-top: 8px; }
.wid-explorer .note { grid-column: 2 / -1; margin: -2px 0 4px; }
.wid-explorer .number { text-align: right; white-space: nowrap; }
.wid-explorer .four { grid-template-columns: max-content minmax(40px, 1fr) max-content max-content; }
.wid-explorer .last { grid-column: 4; }
.wid-explorer .bar { height: 9px; border-radius: 1px; }
.wid-explorer .before { border: 1px solid var(--wid-line); box-sizing: border-box; }
.wid-explorer .after { background: var(--wid-gen); margin-top: 1px; }
.wid-explorer .work { background: var(--wid-ink); }
.wid-explorer .word { unicode-bidi: isolate; overflow-wrap: anywhere; max-width: 110px; }
</style>"""

# What ipywidgets leave out: JupyterLab takes letters typed on a slider for commands ("d d" deletes the cell),
# sliders have no accessible name, a slider of choices reads out its index, and nothing tells of a change.
MANNERS = """
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


class Manners(anywidget.AnyWidget):
    """An invisible widget that mends its neighbours in the page: see MANNERS."""

    _esm = MANNERS


class Explorer:
    """Knobs over a picture in HTML; a subclass says which knobs, and draws.

    As the last expression of a cell it shows two outputs: a table, and the live form in its place while
    a kernel is there.
    """

    title: str
    knobs: Callable[[], dict[str, Any]]  # makes the ipywidgets that turn, by the name of the setting
    say: Callable[..., str]  # gives one sentence of HTML on what these settings do
    draw: Callable[..., str]  # gives the picture for these settings, as HTML
    static_html: Callable[[], str]  # gives the plain table that readers see who have no kernel

    @cached_property
    def widget(self) -> Any:
        """The live form, made on first use: knobs, a reset button, the sentence and the picture."""
        knobs = self.knobs()
        start = {name: knob.value for name, knob in knobs.items()}
        whole = widgets.Layout(width="100%", margin="0")
        said, picture = widgets.HTML(layout=whole), widgets.HTML(layout=whole)
        said.add_class("wid-said")
        reset = widgets.Button(description="Reset", tooltip="Back to the first settings")

        def redraw(_: Any = None) -> None:
            settings = {name: knob.value for name, knob in knobs.items()}
            said.value = f'<div class="wid-explorer">{self.say(**settings)}</div>'
            picture.value = f'{STYLE}<div class="wid-explorer">{self.draw(**settings)}</div>'

        def back(_: Any) -> None:
            for name, knob in knobs.items():
                knob.value = start[name]

        for knob in knobs.values():
            knob.observe(redraw, names="value")
        reset.on_click(back)
        redraw()
        parts = [*knobs.values(), reset, said, picture, Manners(layout=widgets.Layout(display="none"))]
        box = widgets.VBox(parts, layout=widgets.Layout(width="100%"))
        box.add_class("wid-knobs")
        return box

    def __repr__(self) -> str:
        return self.title

    def _ipython_display_(self) -> None:
        outputs.show(self.static_html(), self.widget, repr(self))


def _knob(kind: str, label: str, **settings: Any) -> Any:
    """An ipywidgets slider with its label in words."""
    slider = getattr(widgets, kind)
    tooltip = "tooltip" if "tooltip" in slider.class_trait_names() else "description_tooltip"  # ipywidgets 7
    return slider(
        description=label,
        layout=widgets.Layout(width="100%", max_width="460px"),
        style={"description_width": "104px"},
        **{tooltip: label},
        **settings,
    )


def percent(p: float) -> str:
    """Write a probability: 72.3%; what is not quite 0 or 1 as <0.1% or >99.9%."""
    if 0 < p < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= p < 1 else f"{100 * p:.1f}%"


class NextWord(Explorer):
    """Probabilities of the next word before and after temperature, top-k and top-p.

    Args:
        logits: one number a word, (V,).
        words: their names; the toy's vocabulary unless told otherwise.

    Raises:
        ValueError: the logits are no row of numbers, or there are not as many words.
    """

    title = "Explorer: the next word, by temperature, top-k and top-p"

    def __init__(self, logits: Sequence[float] | np.ndarray, words: Sequence[str] = toy.VOCABULARY) -> None:
        self.logits = check_logits(np.asarray(logits, dtype=float))
        self.words = list(map(str, words))
        if len(self.words) != len(self.logits):
            raise ValueError(
                f"{len(self.logits)} logits came with {len(self.words)} words; expected one word for each: "
                "pass words=[…]"
            )

    def knobs(self) -> dict[str, Any]:
        V = len(self.words)
        return {
            "temperature": _knob("FloatSlider", "temperature", value=1.0, min=0.1, max=3.0, step=0.1),
            "top_k": _knob("IntSlider", f"top-k of {V}", value=V, min=1, max=V),
            "top_p": _knob("FloatSlider", "top-p", value=1.0, min=0.05, max=1.0, step=0.05),
        }

    def after(self, **settings: Any) -> np.ndarray:
        """Return each word's probability, (V,); settings and errors as in `next_probabilities`."""
        return next_probabilities(self.logits, **settings)

    def why_out(
        self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
    ) -> list[str | None]:
        """Say for each word which setting took it out, None for a word that is in; errors as in `after`."""
        left = self.after(temperature=temperature, top_k=top_k, top_p=top_p) > 0
        scaled = (self.logits - self.logits.max()) / temperature
        by_k = scaled if top_k is None else keep_top_k(scaled, top_k)
        by_p = by_k if top_p is None or top_p >= 1 else keep_top_p(by_k, top_p)
        why: list[str | None] = []
        for n, is_in in enumerate(left):
            cut = "top-k" if np.isneginf(by_k[n]) else "top-p" if np.isneginf(by_p[n]) else "temperature"
            why.append(None if is_in else cut)
        return why

    def draw(self, **settings: Any) -> str:
        after, why = self.after(**settings), self.why_out(**settings)
        rows = [
            _word_row(word, p, q, reason, settings)
            for word, p, q, reason in zip(self.words, softmax(self.logits), after, why, strict=True)
        ]
        return (
            '<div class="grid"><span class="soft">word</span>'
            '<span class="soft">frame: before, filled: after</span>'
            f'<span class="soft number">before → after</span>{"".join(rows)}</div>'
            f'<p class="soft">{self._draws(after)}</p>'
        )

    def say(self, **settings: Any) -> str:
        before, after = softmax(self.logits), self.after(**settings)
        top, n_in = int(after.argmax()), int((after > 0).sum())
        first = f"<b>{escape(self.words[top])}</b>"
        moved = f"{first} goes from {escape(percent(before[top]))} to {escape(percent(after[top]))}"
        if np.allclose(before, after):
            moved = f"the probabilities are the model's own, {first} first with {escape(percent(after[top]))}"
        return f"{n_in} of {len(after)} words can be drawn; {moved}."

    def _draws(self, after: np.ndarray) -> str:
        """What 20 draws give: always with the same seed, so that only the settings change them."""
        drawn = np.random.default_rng(SEED).choice(len(after), size=DRAWS, p=after)
        times = [(word, int((drawn == n).sum())) for n, word in enumerate(self.words)]
        seen = ", ".join(f"{escape(word)} {count}" for word, count in times if count)
        return f"{DRAWS} draws, seed {SEED}: {seen}"

    def static_html(self) -> str:
        """Each word's probability at a few settings."""
        settings: dict[str, dict[str, Any]] = {f"temp. {t:g}": {"temperature": t} for t in (1.0, 0.5, 2.0)}
        settings |= {"top-k 2": {"top_k": min(2, len(self.words))}, "top-p 0.9": {"top_p": 0.9}}
        after = np.transpose([self.after(**setting) for setting in settings.values()])  # (V, settings)
        rows = [[percent(p) if p else "out" for p in row] for row in after]
        return (
            "<p>Probability of the next word; without a kernel, at a few settings.</p>"
            + Table(rows, self.words, list(settings), corner="word")._repr_html_()
        )


def _word_row(word: str, before: float, after: float, why: str | None, settings: dict[str, Any]) -> str:
    """One word: its name, two bars, two numbers, and why it is out."""
    told = {
        "top-k": f"top-k keeps the {settings.get('top_k')} largest",
        "top-p": f"larger ones reach top-p {settings.get('top_p') or 0:g}",
        "temperature": "rounds to 0 at this temperature",
    }
    number = escape(f"{percent(before)} → {'out' if why else percent(after)}")
    row = (
        f'<span class="word">{escape(word)}</span>'
        f'<span aria-hidden="true"><div class="bar before" style="width:{100 * before:.1f}%"></div>'
        f'<div class="bar after" style="width:{100 * after:.1f}%"></div></span>'
        f'<span class="number">{number}</span>'
    )
    return row + (f'<span class="note soft">{told[why]}</span>' if why else "")


ROW_NBYTES = 2 * 3 * 8  # two layers, a key of two numbers and a value of one, 8 bytes each


class CostOfReply(Explorer):
    """Positions, pairs and rows of a whole reply, by the lengths of prompt and reply."""

    title = "Explorer: what a reply costs, by the lengths of prompt and reply"

    def knobs(self) -> dict[str, Any]:
        lengths = {"options": [(f"{n:,}", n) for n in LENGTHS]}
        return {
            "prompt": _knob("SelectionSlider", "prompt tokens", value=4, **lengths),
            "reply": _knob("SelectionSlider", "reply tokens", value=8, **lengths),
        }

    def draw(self, **settings: Any) -> str:
        prompt, reply = settings["prompt"], settings["reply"]
        now, longer = (
            [counts.whole_reply(prompt, n, on) for on in (False, True)] for n in (reply, 2 * reply)
        )
        names = {
            "positions": "positions run",
            "pairs": "pairs, of one head and layer",
            "rows_kept": "rows kept in the cache",
        }
        blocks = [
            _work_block(name, *(getattr(work, what) for work in (*now, *longer)))
            for what, name in names.items()
        ]
        return (
            f'<div class="grid four"><span class="soft last">reply × 2</span>{"".join(blocks)}</div>'
            '<p class="soft">reply × 2: how a count grows if the reply gets twice as long. With the cache '
            "positions and rows grow at most × 2, pairs up to × 4.</p>"
        )

    def say(self, **settings: Any) -> str:
        lengths = settings["prompt"], settings["reply"]
        without, cached = (counts.whole_reply(*lengths, cached=on) for on in (False, True))
        rows = f"{large(cached.rows_kept)} row{'s' if cached.rows_kept > 1 else ''}"
        price = f"its price is {rows}, {large(ROW_NBYTES * cached.rows_kept)} bytes in the toy's two layers"
        if settings["reply"] == 1:
            return f"One token is one pass, the prefill: the cache saves nothing yet; {price}."
        return (
            f"With the cache {times(without.positions, cached.positions)} fewer positions and "
            f"{times(without.pairs, cached.pairs)} fewer pairs; {price}."
        )

    def static_html(self) -> str:
        """The same counts for four pairs of lengths."""
        lengths = [(4, 8), (100, 100), (1000, 100), (100, 1000)]
        work = [(counts.whole_reply(*pair, cached=False), counts.whole_reply(*pair)) for pair in lengths]
        rows = {
            "positions, no cache": [without.positions for without, _ in work],
            "positions, cached": [cached.positions for _, cached in work],
            "ratio of positions": [f"{a.positions / b.positions:.1f}" for a, b in work],
            "pairs, no cache": [without.pairs for without, _ in work],
            "pairs, cached": [cached.pairs for _, cached in work],
            "ratio of pairs": [f"{a.pairs / b.pairs:.1f}" for a, b in work],
            "rows kept, cached": [cached.rows_kept for _, cached in work],
            "their bytes, two layers": [ROW_NBYTES * cached.rows_kept for _, cached in work],
        }
        columns = [f"{prompt:,} + {reply:,}" for prompt, reply in lengths]
        return (
            "<p>Whole reply, tokens of prompt + reply; pairs are of one head and one layer.</p>"
            + Table(list(rows.values()), list(rows), columns, corner="prompt + reply")._repr_html_()
        )


def _work_block(name: str, without: int, cached: int, longer_without: int, longer_cached: int) -> str:
    """One count, without and with the cache, on its own scale; and how it grows with the reply."""
    scale = max(without, cached)
    rows = "".join(
        f'<span class="soft">{label}</span>'
        f'<span aria-hidden="true"><div class="bar work" style="width:{100 * n / scale:.2f}%"></div></span>'
        f'<span class="number">{large(n)}</span>'
        f'<span class="number soft">{f"× {longer / n:.1f}" if n else ""}</span>'
        for label, n, longer in (("without", without, longer_without), ("with", cached, longer_cached))
    )
    return f'<b class="wide">{name}</b>{rows}'


def large(n: int) -> str:
    """Write a count so that it can be read: 66, 171,700, 1.17 million."""
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if n >= size:
            return f"{n / size:.3g} {name}"
    return f"{n:,}"


def times(more: int, less: int) -> str:
    """Write a ratio with few digits: 5.5 times, 334 times."""
    return f"{more / less:,.1f} times" if more < 100 * less else f"{more / less:,.0f} times"


next_word, cost_of_reply = NextWord, CostOfReply  # as the notebooks call them
