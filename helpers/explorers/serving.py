"""An explorer: how long do requests wait, by how many come and how many slots there are?"""

from __future__ import annotations

import math
from functools import cache
from statistics import median
from typing import Any

from helpers.cost.models import CARDS, MODELS
from helpers.explorers.explorer import Explorer, Grid, Line, pick
from helpers.serve.fleet import Machine, random_arrivals, slowest, together
from helpers.serve.simulation import Times

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
        return {"rate": pick("a second", RATES, 25), "slots": pick("slots", SLOTS, 4)}

    def grid(self, rate: float, slots: int) -> Grid:
        seconds = {name: t for name, t in served(rate, slots).items() if name.startswith("T")}
        grows, most = line_grows(rate, slots), max(seconds.values())
        kinds = ["before" if grows and name.startswith("TTFT") else "work" for name in seconds]
        bars = [((t / most, kind),) for t, kind in zip(seconds.values(), kinds, strict=True)]
        told = "A hollow bar grows as long as requests come. " if grows else ""
        return Grid([*map(Line, seconds, bars, map(say_seconds, seconds.values()))], told + ABOUT)

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


def say_seconds(seconds: float) -> str:
    """Write seconds with two or three digits: 12.3 s, 8.1 ms."""
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"
