"""An explorer: when does speculation pay, and with how many drafts?"""

from __future__ import annotations

from functools import partial
from typing import Any

from helpers.cost.drafts import times_as_fast
from helpers.explorers.explorer import Explorer, Grid, Line, knob

MOST = 12
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def verify(words: int, more: float) -> float:
    """Return the time of a pass over so many words, where each word more costs that share of a pass."""
    return 1 + (words - 1) * more


class DraftsThatPay(Explorer):
    """Words a pass, and times as fast, by k, share taken, and what drafts and longer passes cost."""

    title = "Explorer: when drafts pay, by k, the share taken, and what they cost"

    def knobs(self) -> dict[str, Any]:
        """Start where drafts pay, and one fewer pays more."""
        shares = [(f"{share:.0%}", share) for share in SHARES]
        return {
            "k": knob("IntSlider", "drafts, k", value=4, min=1, max=MOST),
            "alpha": knob("FloatSlider", "share taken", value=0.7, min=0.0, max=1.0, step=0.05),
            "draft": knob("SelectionSlider", "cost of a draft", options=shares, value=0.15),
            "more": knob("SelectionSlider", "a word more", options=shares, value=0.05),
        }

    def grid(self, *, k: int, alpha: float, draft: float, more: float) -> Grid:
        speeds = [times_as_fast(alpha, n, draft, partial(verify, more=more)) for n in range(MOST + 1)]
        names = [f"<b>k = {n}</b>" if n == k else f"k = {n}" for n in range(MOST + 1)]
        bars = [((one / max(speeds), "after" if n == k else "work"),) for n, one in enumerate(speeds)]
        numbers = [f"{speed:.2f} times" for speed in speeds]
        told = "Costs are shares of a pass over one word: of a drafted word, and of each word more in a pass."
        return Grid([*map(Line, names, bars, numbers)], told)

    def say(self, *, k: int, alpha: float, draft: float, more: float) -> str:
        speed = times_as_fast(alpha, k, draft, partial(verify, more=more))
        took = k * draft + verify(k + 1, more)
        verdict = "faster" if speed > 1 else "slower" if speed < 1 else "as fast as word by word"
        brings, needed = alpha ** (k + 1), (draft + more) * speed
        return (
            f"{speed * took:.2f} words on average in the time of {took:.2f} passes: {speed:.2f} times, "
            f"<b>{verdict}</b>. A draft more brings {brings:.2f} words, and has to bring more than "
            f"{draft + more:.2f} passes × {speed:.2f} = {needed:.2f}: it "
            f"{'pays' if brings > needed else 'does not pay'}."
        )
