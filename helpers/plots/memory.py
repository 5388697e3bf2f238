"""Figures of a cache: the bytes it takes, at some tokens and at any."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from matplotlib.axes import Axes

from helpers.cost.bytes import GIB, cache_nbytes, nbytes_of
from helpers.cost.models import PublishedModel
from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import SMALL, shorten, tenths

LEAST, MOST = 10, 10**6  # tokens at the left and the right edge
TICKS = {2**20: "1 MiB", 2**25: "32 MiB", 2**30: "1 GiB", 2**35: "32 GiB", 2**40: "1 TiB"}


def tokens_as_heavy(model: PublishedModel) -> int | None:
    """Return the least number of tokens whose rows take as many bytes as the weights; None if over MOST."""
    lengths, weights = range(1, MOST + 1), nbytes_of(model.n_parameters)
    at = bisect_left(lengths, weights, key=lambda tokens: cache_nbytes(model.layers, tokens))
    return lengths[at] if at < MOST else None


def rows_by_tokens(models: Sequence[PublishedModel]) -> Picture:
    """Draw the bytes of rows against tokens, both axes logarithmic, 2-byte numbers.

    Args:
        models: up to 6 of them.

    Returns:
        A line a model, thin beyond its longest context, a disc where its rows take as many bytes as its
        weights, and the names at the right end.
    """
    heavy = {model.name: tokens_as_heavy(model) for model in models}
    last = {model.name: cache_nbytes(model.layers, MOST) for model in models}

    def draw(sheet: Sheet) -> None:
        right, base = sheet.width - (128 if sheet.narrow else 200), 374
        sheet.heading("bytes of rows")
        axes = sheet.plot(74, 44, right, base, "tokens")
        axes.set(xscale="log", yscale="log", xlim=(LEAST, MOST), ylim=(2**17, 2**40))
        axes.minorticks_off()
        axes.set_xticks([10, 1000, 100_000], ["10", "1,000", "100,000"])
        axes.set_yticks(list(TICKS), list(TICKS.values()))
        ends = [sheet.at(axes, MOST, nbytes)[1] for nbytes in last.values()]
        for model, y in zip(models, apart(ends, 22, 54, base - 10), strict=True):
            _line(axes, model, heavy[model.name])
            sheet.note(right + 10, y, shorten(model.name, 114, SMALL), colour="ink")
        sheet.disc(24, base + 68, 5, "generated")
        sheet.note(38, base + 68, "as many bytes as the weights")
        sheet.line((18, base + 90), (32, base + 90), width=0.8)
        sheet.note(38, base + 90, "longer than the model can read")

    def said_of(model: PublishedModel) -> str:
        tokens, kib = heavy[model.name], cache_nbytes(model.layers, LEAST) / 1024
        ends = f"{kib:,.0f} KiB at {LEAST} tokens, {tenths(last[model.name] / GIB)} GiB at {MOST:,}"
        marked = f"as many as the weights at {tokens:,}" if tokens else "fewer than the weights all the way"
        marked += ", more than it can read" * bool(tokens and tokens > model.max_seq_len)
        return f"{model.name}: {ends}, {marked}"

    alt = f"Bytes of rows against tokens, both logarithmic. {'; '.join(map(said_of, models))}."
    return Picture(draw, alt)


def _line(axes: Axes, model: PublishedModel, heavy: int | None) -> None:
    """A line with a corner where a window is full, thin from the longest context on."""
    corners = {LEAST, MOST, model.max_seq_len, model.window or MOST, *[2**n for n in range(4, 20)]}
    for first, last, width in ((LEAST, model.max_seq_len, 2.2), (model.max_seq_len, MOST, 0.8)):
        xs = sorted(x for x in corners if first <= x <= last)
        axes.plot(xs, [cache_nbytes(model.layers, x) for x in xs], color="ink", lw=width)
    if heavy:
        axes.plot([heavy], [cache_nbytes(model.layers, heavy)], "o", color="generated", mew=0, ms=10)
