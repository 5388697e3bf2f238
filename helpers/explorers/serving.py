"""An explorer: how long do requests wait, by how many come and how many slots there are?"""

from __future__ import annotations

import math
from functools import cache
from statistics import median
from typing import Any

from helpers.cost.models import CARDS, MODELS
from helpers.explorers.explorer import Explorer, knob
from helpers.serve.fleet import Machine, random_arrivals, slowest, together
from helpers.serve.simulation import Times
from helpers.tables import Table

MODEL, CARD = MODELS["Llama-3.1-8B"], CARDS["H100"]
RATES, SLOTS = (1, 2, 4, 7, 15, 25, 45, 60), (1, 2, 4, 8, 16, 32, 64)
N, MANY = 100, 600  # requests of one run; of one that says how many are served a second at most
ABOUT = (
    f"{N} requests for {MODEL.name} on one H100, 16 bits: prompts of 250 to 750 tokens, replies of 50 to "
    "150. Simulated: our scheduler; a step takes as long as its bytes or its arithmetic, whichever is longer "
    "(4.5 ms or more); 1,024 tokens a step at most, pages enough."
)


def run(rate: float, slots: int, n: int) -> list[Times]:
    """Serve n requests that arrive at random, from one seed; all at once if the rate is endless."""
    machine = Machine(MODEL, CARD, speed=1, link=math.inf, slots=slots, budget=1024)
    return together(machine, random_arrivals(n, rate, prompt=500, reply=100, seed=0), 1)


@cache
def served(rate: float, slots: int) -> dict[str, float]:
    """Serve N requests.

    Returns:
        Seconds to the first token, the median and what 99 in 100 wait at most, and the median for each token
        after it; then the tokens a second of all together.
    """
    times = run(rate, slots, N)
    ttft, tpot = ([getattr(one, name) for one in times] for name in ("ttft", "tpot"))
    end, said = max(one.tokens[-1] for one in times), sum(len(one.tokens) for one in times)
    return {
        "TTFT, median": median(ttft),
        "TTFT, 99 in 100": slowest(times)[0] / 1000,
        "TPOT, median": median(tpot),
        "tokens a second": said / end,
    }


@cache
def most(slots: int) -> float:
    """Return how many requests a second so many slots serve at most: while somebody always waits."""
    ends = sorted(one.tokens[-1] for one in run(math.inf, slots, MANY))
    return (MANY - slots) / ends[MANY - slots - 1]  # those that run last have nobody behind them


def line_grows(rate: float, slots: int) -> bool:
    """Whether more requests arrive than are served: then the wait says only how many have come."""
    return rate > most(slots)


class PeopleInLine(Explorer):
    """Times to first token and per token, by requests a second and slots, from a simulated scheduler."""

    title = "Explorer: who waits how long, by requests a second and slots"

    def knobs(self) -> dict[str, Any]:
        rates, slots = ([(f"{n:,}", n) for n in numbers] for numbers in (RATES, SLOTS))
        return {
            "rate": knob("SelectionSlider", "a second", options=rates, value=25),
            "slots": knob("SelectionSlider", "slots", options=slots, value=4),
        }

    def draw(self, rate: float, slots: int) -> str:
        found = served(rate, slots)
        seconds = {name: t for name, t in found.items() if name.startswith("T")}
        hollow = {name for name in seconds if name.startswith("TTFT") and line_grows(rate, slots)}
        bars = "".join(_bar(name, t, max(seconds.values()), name in hollow) for name, t in seconds.items())
        told = "A hollow bar grows as long as requests come. " if hollow else ""
        return f'<div class="grid">{bars}</div><p class="soft">{told}{ABOUT}</p>'

    def say(self, rate: float, slots: int) -> str:
        found = served(rate, slots)
        serve = f"{slots} slot{'s serve' if slots > 1 else ' serves'} {most(slots):.3g} a second at most"
        wait = f"The median wait is {say_seconds(found['TTFT, median'])} for the first token"
        if line_grows(rate, slots):
            wait = f"<b>The line grows</b> as long as requests come; here {N} came. {wait}"
        return (
            f"{serve}; {rate} come. {wait}, then {say_seconds(found['TPOT, median'])} for each. "
            f"All together: {found['tokens a second']:,.0f} tokens a second."
        )

    def static_html(self) -> str:
        """The medians of time to first token and time per token, for four rates and four slots."""
        rates, some = (1, 7, 25, 60), (1, 4, 16, 64)
        rows = [[f"{most(n):.3g} a second", *[_medians(rate, n) for rate in rates]] for n in some]
        columns = ["serve at most", *[f"{n} a second" for n in rates]]
        return (
            "<p>The median wait for the first token, and then for each, by how many come. Where more come "
            f"than are served, the line grows as long as they come. {ABOUT}</p>"
            + Table(rows, some, columns, corner="slots")._repr_html_()
        )


def _medians(rate: float, slots: int) -> str:
    first, each = (served(rate, slots)[name] for name in ("TTFT, median", "TPOT, median"))
    return f"{'line grows' if line_grows(rate, slots) else say_seconds(first)}, {say_seconds(each)}"


def say_seconds(seconds: float) -> str:
    """Write seconds with two or three digits: 12.3 s, 8.1 ms."""
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"


def _bar(name: str, seconds: float, longest: float, hollow: bool) -> str:
    kind = "before" if hollow else "work"
    return (
        f'<span class="soft">{name}</span><span aria-hidden="true">'
        f'<div class="bar {kind}" style="width:{100 * seconds / longest:.2f}%"></div></span>'
        f'<span class="number">{say_seconds(seconds)}</span>'
    )
