"""The figures and the exercise of notebook 14, fewer entries and fewer bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from helpers.check.exercise import Exercise
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, printable, shorten, text_width
from helpers.model.cache import Cache, GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate, prefill
from helpers.model.shipped import NAME_HEAD
from helpers.model.transformer import Transformer
from helpers.plots.measured import set_log_scale
from helpers.recording.model import as_array, attention_cores
from helpers.recording.recorder import attention_weights
from helpers.tokenizer import Tokenizer

MIN_SHOWN_WEIGHT = 0.1  # smallest attention weight that is shown as a number
PLOT_HEIGHT, LABEL_SPACING, MAX_LABEL_WIDTH = (
    210,
    17,
    215,
)  # px: height of the plot, distance between labels, and width of the longest label
Point = tuple[float, float]


class ListedCache(GrowingCache):
    """A cache that drops entries and lists, in `kept`, the positions of those that each layer still has."""

    kept: list[Tensor]

    def n_stored(self, layer: int) -> int:
        return len(self.kept[layer])

    def entry_positions(self) -> Sequence[int]:
        return self.kept[0].tolist()


class KeptEntries(NamedTuple):
    """The KV entries that remain in a cache after a text was processed, and the reply to the text."""

    weights_by_position: dict[
        int, float
    ]  # maps the position of each entry, from 0, to the newest token's attention weight
    reply: str  # the words that the model generates after the text


def run_and_list_kept_entries(
    model: Transformer, tokenizer: Tokenizer, text: str, make_cache: Callable[[ModelConfig], Cache]
) -> KeptEntries:
    """Process a text with an empty cache, and list the KV entries that remain in the cache.

    Args:
        model: the model.
        tokenizer: the model's tokenizer.
        text: the text.
        make_cache: function that takes the model's config and returns an empty cache.

    Returns:
        The remaining KV entries, each with the attention weight that the head `NAME_HEAD` gives it, and a
        reply of three words.
    """
    ids, cache, (layer, head) = tokenizer.encode(text), make_cache(model.config), NAME_HEAD
    core, given = attention_cores(model)[layer], list[Tensor]()
    with core.register_forward_pre_hook(lambda core, taken: given.extend(taken)):
        prefill(model, ids, cache)
    q, k, _, mask = map(as_array, given)
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    weights = attention_weights(q @ k.swapaxes(-1, -2) * core.scale, mask)[0, head, -1]
    output = generate(model, ids, 3, cache=make_cache(model.config))
    return KeptEntries(
        {place: float(weights[place]) for place in cache.entry_positions()}, tokenizer.decode([*output])
    )


def kept_and_dropped_words(words: Sequence[str], caches: Mapping[str, KeptEntries]) -> Picture:
    """Draw a text once per cache, with the model's reply.

    If the KV entry of a word remains, the word's box is filled, and otherwise it is dashed. Attention weights
    of at least MIN_SHOWN_WEIGHT are written below the words.

    Args:
        words: the words of the text, one per token.
        caches: maps the name of each cache to the result of `run_and_list_kept_entries` for this cache.
    """

    def draw(sheet: Sheet) -> None:
        y = 18.0
        for name, (weights, says) in caches.items():
            sheet.text(8, y, shorten(name, sheet.width - 16, bold=True), bold=True)
            x, y = 8.0, y + 16
            for at, word in enumerate(words):
                wide = text_width(word, SMALL) + 12
                if x + wide > sheet.width - 8:
                    x, y = 8.0, y + 46
                if at in weights:
                    sheet.box(x, y, wide, 26, fill="value fill", edge="value")
                else:
                    sheet.box(x, y, wide, 26, edge="line", dashed=True)
                sheet.note(x + wide / 2, y + 13, word, at="center", colour="ink" if at in weights else "soft")
                if (weight := weights.get(at, 0)) >= MIN_SHOWN_WEIGHT:
                    style: dict[str, Any] = {"at": "center", "colour": "query", "bold": True}
                    sheet.note(x + wide / 2, y + 36, f"{weight:.2f}", **style)
                x += wide + 4
            sheet.arrow(8, y + 62, 34, y + 62, "soft")
            sheet.text(42, y + 62, shorten(says, sheet.width - 50, bold=True), bold=True, colour="generated")
            y += 104

    sentences = []
    for name, (weights, says) in caches.items():
        gone = ", ".join(word for at, word in enumerate(words) if at not in weights) or "nothing"
        looks = ", ".join(f"{words[at]} {w:.2f}" for at, w in weights.items() if w >= MIN_SHOWN_WEIGHT)
        output = f"{words[-1]} attends to {looks}; the model writes {says}"
        sentences.append(f"{printable(name)}: {gone} is gone, {output}")
    return Picture(draw, f"{' '.join(words)}. {'. '.join(sentences)}.")


def channel_ranges(keys: Tensor, levels: Tensor, shared: tuple[float, float]) -> Picture:
    """Draw, for each channel of some keys, the range of its numbers and the levels that they are rounded to.

    Args:
        keys: n keys of one head, of shape (n, D).
        levels: the values of the levels of each channel, of shape (number of levels, D).
        shared: the smallest and the largest number of one key, which share a scale if each token has its own.
    """
    low, high = keys.min(dim=0).values, keys.max(dim=0).values
    least, most = float(keys.min()), float(keys.max())

    def draw(sheet: Sheet) -> None:
        sheet.heading(f"{len(keys)} keys, by channel")
        top, height, left = 62.0, 200.0, 96.0
        step = (sheet.width - left - 16) / keys.shape[1]

        def y(x: float) -> float:
            return top + height * (most - x) / (most - least)

        for n in range(keys.shape[1]):
            x = left + step * (n + 0.5)
            sheet.box(
                x - 3, y(float(high[n])), 6, y(float(low[n])) - y(float(high[n])), fill="key fill", radius=0
            )
            for level in levels[:, n].tolist():
                sheet.line((x - 4, y(level)), (x + 4, y(level)), colour="key", width=1.6)
        sheet.line((46, y(shared[1])), (46, y(shared[0])), width=6, colour="soft")
        sheet.note(18, top - 16, "one token", colour="ink")
        sheet.note(
            left + step * keys.shape[1] / 2,
            top - 16,
            f"each of {keys.shape[1]} channels",
            at="center",
            colour="ink",
        )
        sheet.note(
            sheet.width - 16,
            top + height + 18,
            "a bar: smallest to largest; its lines: the levels",
            at="right",
        )

    spreads = high - low
    sentence = (
        f"A channel's numbers spread over {float(spreads.min()):.1f} to {float(spreads.max()):.1f}; "
        f"one token's go from {shared[0]:.1f} to {shared[1]:.1f}"
    )
    return Picture(draw, f"{len(keys)} keys by channel, with {len(levels)} levels in each. {sentence}.")


def loss_by_cache_size(measurements: Mapping[str, Sequence[float]], n_texts: int, own_name: str) -> Picture:
    """Draw a labelled dot for each variant of the cache: its size (x) against the model's loss (y).

    If the model signs all texts correctly with this variant, the dot is filled. Otherwise, it is hollow.

    Args:
        measurements: maps the name of each variant to (KiB per diary in the cache, number of correctly signed
            texts, loss).
        n_texts: number of texts that the model signs.
        own_name: name of the reader's variant. It has a colour of its own.
    """
    sizes, _, losses = zip(*measurements.values(), strict=True)

    def draw(sheet: Sheet) -> None:
        left, right = 44.0, sheet.width - 20.0
        fewest, widest = min(sizes) / 1.1, max(sizes) * 1.1
        low, high = min(losses) - 0.06, max(losses) + 0.1
        across, up = (right - left) / math.log(widest / fewest), PLOT_HEIGHT / (high - low)
        dots_at = {
            name: (left + across * math.log(size / fewest), up * (high - loss))
            for name, (size, _, loss) in measurements.items()
        }
        names_at = place_labels(dots_at, right)
        top = 52 - min(0.0, *(y for _, y in names_at.values()))  # labels may be above the plot
        sheet.heading(f"loss; a filled dot signs all {n_texts}")
        axes = sheet.add_axes(left, top, right, top + PLOT_HEIGHT, "KiB a diary")
        set_log_scale(axes.xaxis, base=2)
        axes.set(xlim=(fewest, widest), ylim=(low, high))
        for name, (x, y) in names_at.items():
            pole, foot = dots_at[name]
            sheet.line((pole, top + foot), (pole, top + y + (9 if x < pole else -6)), colour="line", width=1)
            sheet.note(x, top + y, shorten(name, MAX_LABEL_WIDTH, SMALL), colour=_colour(name, own_name))
        for name, (x, y) in dots_at.items():
            colour = _colour(name, own_name)
            sheet.disc(x, top + y, 5, colour if measurements[name][1] == n_texts else "paper", colour)

    sentence = "; ".join(
        f"{printable(name)}: {size:.0f} KiB, loss {loss:.2f}, {signed:g} signed"
        for name, (size, signed, loss) in sorted(measurements.items(), key=lambda item: [*item[1]])
    )
    return Picture(draw, f"The loss against the KiB of a diary; signed right, of {n_texts}. {sentence}.")


def _colour(name: str, own: str) -> str:
    return "generated" if name == own else "key" if name.startswith(("window", "16 ")) else "query"


def place_labels(dots: Mapping[str, Point], right_edge: float) -> dict[str, Point]:
    """Return the position (x, y) in px at which the label of each dot begins.

    A vertical pole connects each dot with its label above. The poles are so long that no label overlaps
    another label or crosses a pole.

    Args:
        dots: maps each label to the position (x, y) of its dot in px. Larger values of y are further down.
        right_edge: x position of the right edge, which no label crosses.
    """
    found: dict[str, Point] = {}
    for name in sorted(dots, key=lambda name: (-dots[name][0], dots[name][1])):
        x, y = dots[name]
        wide = min(text_width(name, SMALL), MAX_LABEL_WIDTH)
        start = min(x + 4, right_edge - wide)
        y -= LABEL_SPACING
        reached = sorted(
            (dots[one][1], found[one][1])
            for one in found
            if min(dots[one][0], found[one][0]) < start + wide + 6
        )
        for foot, top in reversed(reached):  # from the lowest dot upwards
            y = top - LABEL_SPACING if top - LABEL_SPACING < y < foot + LABEL_SPACING else y
        found[name] = start, y
    return found


def kept_positions(length: int, window: int, sinks: int) -> list[int]:
    """Return the positions, from 0, whose KV entries remain.

    Args:
        length: number of tokens that were processed.
        window: number of tokens at the end of the text whose KV entries remain.
        sinks: number of tokens at the start of the text whose KV entries remain.
    """
    return [at for at in range(length) if at < sinks or at >= length - window]


kept_entries = Exercise(
    name="kept_entries",
    todo="let kept_entries return the positions of the entries that stay, as a list.",
    cases=[
        *[(10, 4, 0), (10, 4, 2), (4, 4, 0), (5, 4, 0), (6, 4, 1)],
        *[(3, 4, 0), (5, 4, 2), (1, 4, 2), (100, 1, 1)],
    ],
    right_answer=kept_positions,
    wrong_answers=[
        "counted again from 0: an entry keeps the position for which its key was rotated.",
        lambda *args: [*range(len(kept_positions(*args)))],
        "the sinks are counted inside the window: they come on top of it.",
        lambda length, window, sinks: kept_positions(length, max(window - sinks, 0), sinks),
        lambda length, window, sinks: kept_positions(length, window - sinks, sinks),
        "off by one: the newest `window` entries are those from length - window on.",
        lambda length, window, sinks: kept_positions(length, window - 1, sinks),
        lambda length, window, sinks: kept_positions(length, window + 1, sinks),
        "a position twice: in a short text, a sink is in the window too.",
        lambda length, window, sinks: [*range(sinks), *kept_positions(length, window, 0)],
        lambda length, window, sinks: [*range(min(sinks, length)), *kept_positions(length, window, 0)],
    ],
    success="of ten entries 6 to 9 with a window of 4, and 0 and 1 too with two sinks.",
)
