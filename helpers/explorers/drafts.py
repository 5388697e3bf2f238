"""An explorer: when does speculation pay, and with how many drafts?"""

from __future__ import annotations

from functools import partial
from typing import Any

from helpers.cost.drafts import best_k, times_as_fast
from helpers.explorers.explorer import Explorer, bar, knob
from helpers.tables import Table

MOST = 12
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def verify(words: int, more: float) -> float:
    """Return the time of a pass over so many words, where each word more costs that share of a pass."""
    return 1 + (words - 1) * more


class DraftsThatPay(Explorer):
    """Words a pass, and times as fast, by k, share taken, and what drafts and longer passes cost."""

    title = "Explorer: when drafts pay, by k, the share taken, and what they cost"

    def knobs(self) -> dict[str, Any]:
        """Start with the numbers of notebook 13's second prediction."""
        shares = [(f"{share:.0%}", share) for share in SHARES]
        return {
            "k": knob("IntSlider", "drafts, k", value=4, min=1, max=MOST),
            "alpha": knob("FloatSlider", "share taken", value=0.7, min=0.0, max=1.0, step=0.05),
            "draft": knob("SelectionSlider", "cost of a draft", options=shares, value=0.15),
            "more": knob("SelectionSlider", "a word more", options=shares, value=0.05),
        }

    def draw(self, *, k: int, alpha: float, draft: float, more: float) -> str:
        speeds = [times_as_fast(alpha, n, draft, partial(verify, more=more)) for n in range(MOST + 1)]
        names = [f"<b>k = {n}</b>" if n == k else f"k = {n}" for n in range(MOST + 1)]
        rows = "".join(
            bar(name, speed / max(speeds), f"{speed:.2f} times", "after" if n == k else "work")
            for n, (name, speed) in enumerate(zip(names, speeds, strict=True))
        )
        return (
            f'<div class="grid">{rows}</div><p class="soft">Costs are shares of a pass over one word: of a '
            "drafted word, and of each word more in a pass.</p>"
        )

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

    def static_html(self) -> str:
        """The best k, and what it gives, for drafts of several prices and shares taken."""
        prices, shares = (0.02, 0.05, 0.15, 0.4, 0.75), (0.3, 0.5, 0.7, 0.9)
        cost = partial(verify, more=0.05)

        def best(alpha: float, draft: float) -> str:
            k = best_k(alpha, draft, cost)
            return f"{times_as_fast(alpha, k, draft, cost):.2f} times, k = {k}" if k else "nothing"

        rows = [[best(alpha, draft) for alpha in shares] for draft in prices]
        names, columns = [f"{price:.0%}" for price in prices], [f"{share:.0%} taken" for share in shares]
        return (
            "<p>The best k, and what it gives, if each word more in a pass costs 5% of one. The dearer a "
            "draft, the fewer pay, down to none.</p>"
            + Table(rows, names, columns, corner="cost of a draft")._repr_html_()
        )
