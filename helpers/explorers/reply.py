"""An explorer: what does a reply cost, with the cache and without?"""

from __future__ import annotations

from typing import Any

from helpers.cost import counts
from helpers.explorers.explorer import Explorer, bar, pick
from helpers.tables import Table

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500, 1000, 2000, 5000, 10_000)
ROW_NBYTES = 2 * 3 * 8  # two layers, a key of two numbers and a value of one, 8 bytes each


class CostOfReply(Explorer):
    """Positions, pairs and rows of a whole reply, by the lengths of prompt and reply."""

    title = "Explorer: what a reply costs, by the lengths of prompt and reply"

    def knobs(self) -> dict[str, Any]:
        return {"prompt": pick("prompt tokens", LENGTHS, 4), "reply": pick("reply tokens", LENGTHS, 8)}

    def draw(self, **settings: Any) -> str:
        prompt, reply = settings["prompt"], settings["reply"]
        now, longer = (
            [counts.whole_reply(prompt, n, on) for on in (False, True)] for n in (reply, 2 * reply)
        )
        names = {
            "tokens_run": "tokens run",
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
            "tokens run and rows grow at most × 2, pairs up to × 4.</p>"
        )

    def say(self, **settings: Any) -> str:
        lengths = settings["prompt"], settings["reply"]
        without, cached = (counts.whole_reply(*lengths, cached=on) for on in (False, True))
        rows = f"{large(cached.rows_kept)} row{'s' if cached.rows_kept > 1 else ''}"
        price = f"its price is {rows}, {large(ROW_NBYTES * cached.rows_kept)} bytes in the toy's two layers"
        if settings["reply"] == 1:
            return f"One token is one pass, the prefill: the cache saves nothing yet; {price}."
        return (
            f"With the cache {times(without.tokens_run, cached.tokens_run)} fewer tokens run and "
            f"{times(without.pairs, cached.pairs)} fewer pairs; {price}."
        )

    def static_html(self) -> str:
        """The same counts for four pairs of lengths."""
        lengths = [(4, 8), (100, 100), (1000, 100), (100, 1000)]
        work = [(counts.whole_reply(*pair, cached=False), counts.whole_reply(*pair)) for pair in lengths]
        rows = {
            "tokens run, no cache": [without.tokens_run for without, _ in work],
            "tokens run, cached": [cached.tokens_run for _, cached in work],
            "ratio of tokens run": [f"{a.tokens_run / b.tokens_run:.1f}" for a, b in work],
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
        bar(label, n / scale, large(n))
        + f'<span class="number soft">{f"× {longer / n:.1f}" if n else ""}</span>'
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
