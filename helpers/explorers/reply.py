"""An explorer: what does a reply cost, with the cache and without?"""

from __future__ import annotations

from typing import Any

from helpers.cost import counts
from helpers.explorers.explorer import Explorer, Grid, Line, pick

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500, 1000, 2000, 5000, 10_000)
ROW_NBYTES = 2 * 3 * 8  # two layers, a key of two numbers and a value of one, 8 bytes each
COUNTED = {
    "tokens_processed": "tokens processed",
    "pairs": "pairs, of one head and layer",
    "rows_kept": "rows kept in the cache",
}


class CostOfReply(Explorer):
    """Positions, pairs and rows of a whole reply, by the lengths of prompt and reply."""

    title = "Explorer: what a reply costs, by the lengths of prompt and reply"

    def __init__(self, reply: int = 8) -> None:
        """Start with a reply of one of LENGTHS."""
        self.reply = reply

    def knobs(self) -> dict[str, Any]:
        return {
            "prompt": pick("prompt tokens", LENGTHS, 4),
            "reply": pick("reply tokens", LENGTHS, self.reply),
        }

    def grid(self, prompt: int, reply: int) -> Grid:
        message = (
            "reply × 2: how a count grows if the reply gets twice as long. With the cache tokens processed "
            "and rows grow at most × 2, pairs up to × 4."
        )
        lines = [one for what in COUNTED for one in _work_block(what, prompt, reply)]
        return Grid(lines, message, ("", "", "reply × 2"))

    def say(self, prompt: int, reply: int) -> str:
        without, cached = (counts.whole_reply(prompt, reply, on) for on in (False, True))
        rows = f"{large(cached.rows_kept)} row{'s' if cached.rows_kept > 1 else ''}"
        price = f"its price is {rows}, {large(ROW_NBYTES * cached.rows_kept)} bytes in the toy's two layers"
        if reply == 1:
            return f"One token is one pass, the prefill: the cache saves nothing yet; {price}."
        return (
            f"With the cache {times(without.tokens_processed, cached.tokens_processed)} fewer tokens "
            f"processed and {times(without.pairs, cached.pairs)} fewer pairs; {price}."
        )


def _work_block(what: str, prompt: int, reply: int) -> list[Line | str]:
    """One count, without and with the cache, on its own scale; and how it grows with the reply."""
    now, longer = (
        [getattr(counts.whole_reply(prompt, n, on), what) for on in (False, True)] for n in (reply, 2 * reply)
    )
    block: list[Line | str] = [COUNTED[what]]
    for name, n, more in zip(("without", "with"), now, longer, strict=True):
        grows = f"× {more / n:.1f}" if n else ""
        block.append(Line(name, ((n / max(now), "work"),), large(n), aside=grows))
    return block


def large(n: int) -> str:
    """Write a count so that it can be read: 66, 171,700, 1.17 million."""
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if n >= max(10**6, 0.9995 * size):  # 999.6 of the next one would have an exponent
            return f"{n / size:.3g} {name}"
    return f"{n:,}"


def times(more: int, less: int) -> str:
    """Write a ratio with few digits: 5.5 times, 334 times."""
    return f"{more / less:,.1f} times" if more < 100 * less else f"{more / less:,.0f} times"
