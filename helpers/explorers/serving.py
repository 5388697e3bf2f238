"""An explorer: how long do requests wait, by how many come and how many slots there are?"""

from __future__ import annotations

import random
from functools import cache
from statistics import median
from typing import Any

from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Work, seconds_at_least
from helpers.explorers.explorer import Explorer, knob
from helpers.serve.blocks import Blocks
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request
from helpers.serve.simulation import poisson, simulate
from helpers.tables import Table

MODEL, CARD = MODELS["Llama-3.1-8B"], CARDS["H100"]
WEIGHTS, ROW = 2 * (MODEL.n_parameters - MODEL.vocab_size * MODEL.hidden_size), MODEL.cache_nbytes_per_token()
RATES, SLOTS = (1, 2, 5, 10, 20, 50, 100), (1, 2, 4, 8, 16, 32, 64)
N = 100  # requests of one run
ABOUT = (
    f"{N} requests for {MODEL.name} on one H100, 16 bits: prompts of 100 to 900 tokens, replies of 20 to "
    "180. Simulated: our scheduler, a step as long as bytes and arithmetic take at the least (4.5 ms and "
    "more), 1,024 tokens a step at most, pages enough."
)


def seconds_of(plan: Plan) -> float:
    """Return what a step takes on the card at the least, in 16 bits: weights once, all rows, arithmetic.

    A number of the weights is 2 bytes, and 2 operations for each token.
    """
    rows = ROW * sum(one.n_run + n for one, n in plan)
    return seconds_at_least(Work(sum(n for _, n in plan) * WEIGHTS, WEIGHTS + rows), CARD)


@cache
def served(rate: float, slots: int) -> dict[str, float]:
    """Serve N requests that arrive at random, from one seed; return what became of them.

    Returns:
        Seconds to the first token, the median and what 99 in 100 wait at most, and the median for each token
        after it; then the tokens a second of all together.
    """
    rng = random.Random(0)
    sizes = [(round(rng.uniform(100, 900)), round(rng.uniform(20, 180))) for _ in range(N)]
    arrivals = poisson(N, rate, 0, lambda n: Request(n, [0] * sizes[n][0], sizes[n][1]))
    scheduler = Scheduler(Blocks(10**5, sharing=False), slots, max(1024, slots))
    times = list(simulate(scheduler, arrivals, seconds_of).values())
    ttft, tpot = ([getattr(one, name) for one in times] for name in ("ttft", "tpot"))
    end, said = max(one.tokens[-1] for one in times), sum(len(one.tokens) for one in times)
    return {
        "TTFT, median": median(ttft),
        "TTFT, 99 in 100": sorted(ttft)[round(0.99 * N) - 1],
        "TPOT, median": median(tpot),
        "tokens a second": said / end,
    }


class PeopleInLine(Explorer):
    """Times to first token and per token, by requests a second and slots, from a simulated scheduler."""

    title = "Explorer: who waits how long, by requests a second and slots"

    def knobs(self) -> dict[str, Any]:
        rates, slots = ([(f"{n:,}", n) for n in numbers] for numbers in (RATES, SLOTS))
        return {
            "rate": knob("SelectionSlider", "a second", options=rates, value=20),
            "slots": knob("SelectionSlider", "slots", options=slots, value=4),
        }

    def draw(self, rate: float, slots: int) -> str:
        found = served(rate, slots)
        seconds = {name: t for name, t in found.items() if name.startswith("T")}
        bars = "".join(_bar(name, t, max(seconds.values())) for name, t in seconds.items())
        return f'<div class="grid">{bars}</div><p class="soft">{ABOUT}</p>'

    def say(self, rate: float, slots: int) -> str:
        found = served(rate, slots)
        return (
            f"{found['tokens a second']:,.0f} tokens a second. The median wait is "
            f"{say_seconds(found['TTFT, median'])} for the first token, then "
            f"{say_seconds(found['TPOT, median'])} for each."
        )

    def static_html(self) -> str:
        """The medians of time to first token and time per token, for three rates and four slots."""
        rates, rows = (1, 20, 100), []
        for slots in (1, 4, 16, 64):
            found = [served(rate, slots) for rate in rates]
            names = ("TTFT, median", "TPOT, median")
            rows.append([", ".join(say_seconds(one[name]) for name in names) for one in found])
        return (
            f"<p>The median wait for the first token, and then for each. {ABOUT}</p>"
            + Table(rows, (1, 4, 16, 64), [f"{n} a second" for n in rates], corner="slots")._repr_html_()
        )


def say_seconds(seconds: float) -> str:
    """Write seconds with two or three digits: 12.3 s, 8.1 ms."""
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"


def _bar(name: str, seconds: float, longest: float) -> str:
    return (
        f'<span class="soft">{name}</span><span aria-hidden="true">'
        f'<div class="bar work" style="width:{100 * seconds / longest:.2f}%"></div></span>'
        f'<span class="number">{say_seconds(seconds)}</span>'
    )
