"""An explorer: when does speculation pay, and with how many drafts?"""

from __future__ import annotations

from functools import partial
from typing import Any

from helpers.cost.drafts import best_k, times_as_fast
from helpers.explorers.explorer import Explorer, knob
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
        rows = "".join(_bar(n, speed, max(speeds), chosen=n == k) for n, speed in enumerate(speeds))
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
        rows = []
        for draft in prices:
            best = [best_k(alpha, draft, cost) for alpha in shares]
            speeds = [times_as_fast(alpha, n, draft, cost) for alpha, n in zip(shares, best, strict=True)]
            rows.append(
                [
                    f"{speed:.2f} times, k = {n}" if n else "nothing"
                    for n, speed in zip(best, speeds, strict=True)
                ]
            )
        return (
            "<p>The best k, and what it gives, if each word more in a pass costs 5% of one. The dearer a "
            "draft, the fewer pay, down to none.</p>"
            + Table(
                rows,
                [f"{price:.0%}" for price in prices],
                [f"{share:.0%} taken" for share in shares],
                corner="cost of a draft",
            )._repr_html_()
        )


def _bar(k: int, speed: float, most: float, chosen: bool) -> str:
    name, kind = (f"<b>k = {k}</b>", "after") if chosen else (f"k = {k}", "work")
    return (
        f'<span class="soft">{name}</span><span aria-hidden="true">'
        f'<div class="bar {kind}" style="width:{100 * speed / most:.2f}%"></div></span>'
        f'<span class="number">{speed:.2f} times</span>'
    )
