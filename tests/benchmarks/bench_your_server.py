"""How often notebook 25 is right about servers on a simulated clock, as its last section says.

    python -m tests.benchmarks.bench_your_server        # sixty servers, some minutes

The servers' settings are drawn by chance. Their pieces come 0.5 ms late and their steps last 5% longer, on
average. Once the server says how many tokens it found in its cache, and once only the clock tells.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections import Counter

from helpers.chapters import n25
from helpers.serve.endpoint import Settings, drawn_settings
from tests.test_your_server import card_of


def verdicts(settings: Settings, card: dict[str, str | None]) -> dict[str, bool | None]:
    """Return for each setting that can be found whether the report card is right; None if it cannot tell."""
    low, _, high, _ = (card["token budget"] or "0 to 0 tokens").split()
    found = {
        "slots": card["slots"] == str(settings.slots),
        "cache": card["prefix cache"] == ("on" if settings.prefix_caching else "off"),
        "budget": int(low) <= settings.token_budget <= int(high) if card["token budget"] else None,
    }
    if settings.prefix_caching:
        found["block"] = card["block"] == str(settings.page_size) if card["block"] else None
    return found


def main(n: int) -> None:
    """Print how many of n servers were found right, wrong, or not at all."""
    for name in ("streams", "stairs"):  # the page's pictures are not needed
        setattr(n25, name, lambda *_, **__: None)
    for tells in (True, False):
        counts: Counter[tuple[str, bool | None]] = Counter()
        for seed in range(n):
            settings = drawn_settings(random.Random(seed))
            with contextlib.redirect_stdout(io.StringIO()):
                card = card_of(settings, seed=seed, tells=tells)
            counts.update(verdicts(settings, card).items())
        print("the server counts:" if tells else "by the clock alone:")
        for name in ("slots", "cache", "budget", "block"):
            print(f"  {name:8}", *(f"{counts[name, so]:4} {word}" for so, word in WORDS.items()))


WORDS = {True: "right", False: "wrong", None: "cannot tell"}

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
