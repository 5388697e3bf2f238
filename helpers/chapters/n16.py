"""Notebook 16, serving many: a map of slots and token budgets, figures, and exercises."""

from __future__ import annotations

import math
import operator
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.cost.layers import GIB
from helpers.cost.models import CARDS, MODELS
from helpers.cost.service import Service
from helpers.cost.step import step_time
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.explorer import Explorer, labelled_widget, number_slider
from helpers.drawing.words import SMALL, pluralize, printable, require, shorten
from helpers.plots.measured import line_chart
from helpers.serve import fleet
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.simulation import simulate

SLOTS, BUDGETS = (8, 16, 64), (64, 256, 512, 1024, 4096)
REACHED = 0.7  # share of the card's bandwidth and compute that is reached, as others have measured
N, GROWS = 150, 5000  # requests; ms: a wait this long means a queue that grows while requests arrive
Steps = Sequence[Mapping[int, str]]  # for each step, from a slot to the request that runs in it
Waits = Mapping[tuple[int, int], tuple[float, float]]

# From (users, prompt tokens, reply tokens) to the median milliseconds of the decode steps of a run, for
# Llama-2-7B on an A100 80 GB in 16 bits.
# Source: LMDeploy 0.1.0a1, docs/en/benchmark/a100_fp16.md at commit 3e391df, 2023.
PUBLISHED = {(1, 128, 2048): 10, (16, 128, 2048): 15, (32, 128, 2048): 21, (64, 128, 2048): 30}


def steps_measured() -> dict[str, list[float]]:
    """Return the published decode steps.

    Returns:
        From the number of users to a list of the tokens per user (halfway through the reply), the lower bound
        in ms, the measured ms, and bound / measured.
    """
    lines = {}
    for (users, prompt, reply), ms in PUBLISHED.items():
        tokens = prompt + reply // 2
        bound = 1000 * step_time(MODELS["Llama-2-7B"], CARDS["A100"], tokens, users).total
        lines[str(users)] = [tokens, bound, ms, bound / ms]
    return lines


@lru_cache(64)
def choices(service: Service, per_second: float, hits: bool) -> Waits:
    """Simulate a service with each pair of slots and token budget, and return the waits.

    If some slots are never in use, fewer slots give the same waits as long as they suffice, and these are
    not simulated again.

    Args:
        service: the service.
        per_second: mean number of requests that arrive per second.
        hits: whether the KV entries of earlier turns are found in the cache.

    Returns:
        From (slots, budget) to the 99th-percentile waits in ms: to the first word, and the longest wait
        between two words.
    """
    waits: dict[tuple[int, int], tuple[float, float]] = {}
    arrivals = fleet.chat_turns(service, N, 0, per_second, hits)
    longest = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
    for budget in BUDGETS:
        most, last = SLOTS[-1] + 1, SLOTS[-1]  # slots in use at the same time, when `last` were allowed
        for slots in reversed(SLOTS):
            if most <= slots:
                waits[slots, budget] = waits[last, budget]
                continue
            machine = fleet.Machine(service.model, service.card, REACHED, 1e12, slots, budget)
            scheduler, used = Scheduler(PageManager(slots, longest, prefix_caching=False), slots, budget), [0]

            def step(
                plan: Plan, machine: Any = machine, scheduler: Any = scheduler, used: Any = used
            ) -> float:
                used.append(len(scheduler.running))
                return machine.plan_seconds(plan)

            first, gap = fleet.p99_waits([*simulate(scheduler, arrivals, step).values()])
            waits[slots, budget] = first, gap
            most, last = max(used), slots
    return waits


def slots_that_fit(service: Service, hits: bool) -> int:
    """Return how many replies' rows fit into the memory that the weights leave.

    With `hits`, the rows of shared tokens and of all idle chats also take up memory.
    """
    own = service.kv_nbytes(service.context - service.shared_tokens * hits)
    kept = service.weights_nbytes + hits * (service.shared_nbytes + service.idle_chats * service.idle_nbytes)
    return max(0, int((service.memory_gib * GIB - kept) // own))


def recipe(service: Service) -> list[tuple[str, str, int]]:
    """Return limits of the slots and of the token budget, if the rows of earlier turns are not found.

    The minimum number of slots follows from Little's law, with every wait between words as long as the SLO
    allows.

    Returns:
        For each limit: its name, its formula in words, and its value.
    """
    slo, prompt = service.itl_slo, service.context - service.reply // 2
    slots = math.ceil(service.replying(slo))
    tokens = math.ceil(service.requests_per_second * (prompt + service.reply) * slo)
    step = partial(step_time, bandwidth_reached=REACHED, compute_reached=REACHED)

    def seconds(budget: int) -> float:
        chunk = budget - slots  # the last chunk of a prompt
        texts = [*[(service.context, 1)] * slots, (max(0, prompt - chunk), chunk)]
        return step(service.model, service.card, texts).total

    most = bisect(range(slots + 1, 2**16), slo, key=seconds) + slots
    return [
        ("slots, at least", "requests a second × tokens of a reply × SLO between words", slots),
        ("slots, at most", "memory for rows ÷ rows of a text", slots_that_fit(service, False)),
        ("budget, at least", "tokens that come in a second × SLO between words", tokens),
        ("budget, at most", "the largest step within the SLO, by the equation", most),
    ]


@dataclass(frozen=True)
class Choices:
    """A map of the 99th-percentile waits for each pair of slots and token budget.

    Each cell shows two waits in ms, to the first word and between words. It is filled if both waits are
    within `most` and the slots fit into memory.
    """

    waits: Waits  # as `choices` returns them
    most: tuple[float, float]  # longest waits allowed, in ms: to the first word, and between two words
    fit: int  # number of slots that fit into memory
    note: str = "For 99 of 100, ms: above to the first word, below between two words."

    @property
    def fine(self) -> list[tuple[int, int]]:
        """The (slots, budget) pairs for which both waits are within `most` and the slots fit into memory."""
        return [
            pair
            for pair, both in self.waits.items()
            if pair[0] <= self.fit and all(a <= b for a, b in zip(both, self.most, strict=True))
        ]

    def draw(self, sheet: Sheet) -> None:
        """Draw the map on a sheet."""
        left, top, high = 52.0, 64.0, 54.0
        wide = (sheet.width - left - 12) / len(BUDGETS)
        sheet.note(left, 18, "tokens of a step, at most", colour="ink")
        sheet.note(12, 42, "slots", colour="ink")
        for n, budget in enumerate(BUDGETS):
            sheet.text(left + wide * (n + 0.5), 42, f"{budget:,}", at="center", size=SMALL, bold=True)
        y, too_many = top, [slots for slots in SLOTS if slots > self.fit]
        for slots in SLOTS:
            if [slots] == too_many[:1]:
                sheet.line((12, y + 3), (sheet.width - 12, y + 3), dashes=(0, (5, 4)))
                sheet.note(12, y + 16, f"below: more than {self.fit} do not fit into memory", colour="ink")
                y += 28
            sheet.text(12, y + high / 2, str(slots), bold=True)
            for n, budget in enumerate(BUDGETS):
                x, fine = left + wide * n, (slots, budget) in self.fine
                fill, edge = ("generated fill", "generated") if fine else ("none", "line")
                sheet.box(x + 2, y + 2, wide - 4, high - 4, fill=fill, edge=edge)
                for at, ms, limit in zip((16, 37), self.waits[slots, budget], self.most, strict=True):
                    style: dict[str, Any] = {"colour": "soft" if ms > limit else "ink", "bold": ms <= limit}
                    sheet.note(x + wide / 2, y + at, short_ms(ms), at="center", **style)
            y += high

    def in_words(self) -> str:
        """Return the map as text."""
        sentence = "; ".join(
            f"{slots} slots, {budget:,}: {' and '.join(map(short_ms, both))}"
            for (slots, budget), both in sorted(self.waits.items())
        )
        good = ", ".join(f"{slots} slots with {budget:,}" for slots, budget in sorted(self.fine)) or "none"
        alt = "Milliseconds to the first word, and the longest wait between two, by slots and budget"
        return f"{alt}. {sentence}. {self.fit} slots fit. Short enough: {good}."

    def html(self) -> str:
        """Return the map as the HTML of a picture."""
        return Picture(self.draw, self.in_words()).html()


def short_ms(ms: float) -> str:
    """Return milliseconds as text, or "grows" if the wait is so long that the queue must be growing."""
    return "grows" if ms >= GROWS else f"{ms:,.0f}"


class Map(Explorer):
    """An explorer that shows which slots and token budgets meet both SLOs of a service on one card.

    Waits are simulated, with step times from the equation of `step_time`.

    Args:
        service: the initial service. At first, rows of earlier turns are not found in the cache.
        ttft_slo: initial limit on the time to the first word, in seconds.
    """

    title = "Explorer: slots and budget, by what comes and by two SLOs"

    def __init__(self, service: Service, ttft_slo: float) -> None:
        self.service, self.ttft_slo = service, ttft_slo

    def controls(self) -> dict[str, Any]:
        one = self.service
        ways = [("processed again", False), ("found (notebook 17)", True)]
        return {
            "arrivals": choose("requests/s", (1, 2, 3, 4, 5), one.requests_per_second),
            "message": choose("new tokens", (100, 300, 1000, 3000), one.message),
            "reply": choose("reply tokens", (50, 100, 250, 500), one.reply),
            "hits": labelled_widget("SelectionSlider", "earlier turns", options=ways, value=False),
            "first": choose("first word, ms", (100, 200, 300, 500, 1000, 2000), 1000 * self.ttft_slo),
            "gap": choose("between, ms", (10, 15, 20, 25, 40, 60), 1000 * one.itl_slo),
        }

    def at(self, arrivals: float, message: int, reply: int, **_: Any) -> Service:
        """Return the service with these settings.

        Args:
            arrivals: requests per second.
            message, reply: tokens of a message and of a reply.
        """
        chats = arrivals / self.service.turns
        card = self.service.card.name
        return replace(self.service, card=card, message=message, reply=reply, chats_per_second=chats)

    def picture(self, **settings: Any) -> Any:
        service, hits = self.at(**settings), settings["hits"]
        waits = choices(service, settings["arrivals"], hits)
        return Choices(waits, (settings["first"], settings["gap"]), slots_that_fit(service, hits))

    def sentence_html(self, **settings: Any) -> str:
        found = self.picture(**settings)
        service = self.at(**settings)
        tokens = service.message if settings["hits"] else service.context - service.reply // 2
        good = ", ".join(f"{slots} slots with {budget:,}" for slots, budget in sorted(found.fine))
        return (
            f"A prompt has {tokens:,} tokens to process, on average. "
            f"{'Both SLOs are met with ' + good if good else 'No choice meets both SLOs'}."
        )


def choose(label: str, numbers: Sequence[float], first: float) -> Any:
    """Return a knob to choose from a few numbers, to which the initial value `first` is added."""
    return number_slider(label, sorted({*numbers, round(first)}), round(first))  # type: ignore[arg-type]


def slots(runs: Mapping[str, Steps], n_slots: int) -> Picture:
    """Draw one chart for each run, with a row per slot, a column per step and a block for each request.

    Idle slots are hatched.

    Args:
        runs: from the name of each run to its steps, up to 20; a step maps slots, from 0, to requests.
        n_slots: number of slots.
    """
    longest = max(map(len, runs.values()))
    require(longest <= 20, f"{longest} steps in the longest run; expected at most 20 to draw")
    idle = {name: sum(n_slots - len(step) for step in steps) for name, steps in runs.items()}

    def draw(sheet: Sheet) -> None:
        left, high = 74.0, 30.0
        wide, top = (sheet.width - left - 18) / longest, 22.0
        for name, steps in runs.items():
            heading = f"{name}: {pluralize(len(steps), 'step')}"
            sheet.text(18, top, shorten(heading, sheet.width - 36, bold=True), bold=True)
            begin_y = top + 20
            for slot in range(n_slots):
                y = begin_y + high * slot
                sheet.note(left - 10, y + high / 2, f"slot {slot + 1}", at="right")
                for who, begin, end in stretches(steps, slot):
                    place = left + wide * begin + 1.5, y + 1.5, wide * (end - begin) - 3, high - 3
                    if not who:
                        _hatched(sheet, *place)
                        continue
                    sheet.box(*place, fill="generated fill", edge="generated")
                    name = shorten(who, wide - 4)
                    sheet.text(left + wide * (begin + 0.5), y + high / 2, name, at="center")
            for n in range(len(steps)):
                x = left + wide * (n + 1)
                sheet.line((x, begin_y), (x, begin_y + high * n_slots + 4), colour="line", width=1)
                if wide >= 20 or (n + 1) % 5 == 0:  # if there is room for the number
                    sheet.note(x - wide / 2, begin_y + high * n_slots + 12, str(n + 1), at="center")
            top = begin_y + high * n_slots + 46

    alt = "; ".join(
        f"{printable(name)}: {pluralize(len(steps), 'step')}, "
        f"{idle[name]} of {n_slots * len(steps)} places idle, "
        + ", ".join(
            f"slot {slot + 1} "
            + " ".join(f"{who or 'idle'} {end - begin}" for who, begin, end in stretches(steps, slot))
            for slot in range(n_slots)
        )
        for name, steps in runs.items()
    )
    return Picture(draw, f"Slots against steps. {alt}.")


def stretches(steps: Steps, slot: int) -> list[tuple[str, int, int]]:
    """Return the stretches of consecutive steps in which a slot has the same request.

    Args:
        steps: the steps, each of which maps slots to requests.
        slot: the slot, from 0.

    Returns:
        (request, begin, end) for each stretch, in order. The request is "" while the slot is idle; `begin`
        and `end` are indices of steps, from 0, and `end` is exclusive.
    """
    found: list[tuple[str, int, int]] = []
    for who, each in groupby(step.get(slot, "") for step in steps):
        begin = found[-1][2] if found else 0
        found.append((who, begin, begin + len([*each])))
    return found


def _hatched(sheet: Sheet, x: float, y: float, wide: float, high: float) -> None:
    sheet.box(x, y, wide, high, edge="line")
    for n in range(1, int((wide + high) / 9)):
        low, far = 9.0 * n - high, 9.0 * n
        start = (x + max(low, 0), y + high + min(low, 0))
        sheet.line(start, (x + min(far, wide), y + max(far - wide, 0)), colour="line", width=1)


def stall(budgets: Sequence[int], ttft: Sequence[float], gap: Sequence[float]) -> Picture:
    """Draw how the token budget affects a long prompt and the requests that run at the same time.

    Args:
        budgets: tokens per step, ascending.
        ttft: time to first token of the long prompt with each budget, in ms.
        gap: longest wait between two words of the other requests with each budget, in ms.
    """
    series = {"TTFT of the long prompt": ttft, "longest wait of others": gap}
    across = "tokens of a step, at most"
    return line_chart("milliseconds", "ms", across, budgets, series, "xy")


def dealt(waiting: list[int], running: int, budget: int, whole: bool = False, by: bool = False) -> list[int]:
    """Return how many tokens of each waiting prompt run in the next step.

    Args:
        waiting: tokens left to process in each prompt, in order of arrival.
        running: number of running requests, each of which takes one token of the budget.
        budget: maximum number of tokens in the step.
        whole: run each prompt whole or not at all, instead of in chunks.
        by: if whole, let prompts that fit overtake a prompt that does not.
    """
    left, given = budget - running, []
    for tokens in waiting:
        fits = tokens <= left
        given.append(tokens if fits else 0 if whole else left)
        left -= given[-1] if fits or by or not whole else left
    return given


next_step = Exercise(
    name="next_step",
    todo="let next_step return a list: how many tokens each prompt runs.",
    cases=[
        *[([5, 12, 4], 3, 10), ([20], 2, 8), ([3, 3], 4, 16)],
        *[([4, 2], 6, 6), ([7, 2], 1, 6), ([], 2, 4)],
    ],
    right_answer=dealt,
    wrong_answers=[
        "the running come first: each takes one token of the budget.",
        lambda waiting, running, budget: dealt(waiting, 0, budget),
        "a prompt that does not fit runs in chunks: it gets what is left.",
        partial(dealt, whole=True),
        partial(dealt, whole=True, by=True),
        "the whole of each: what one gets, the next cannot get too.",
        lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
        lambda waiting, running, budget: [*waiting],
        "shared out evenly: the one who came first gets all it can use.",
        lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
    ],
    success="3 who run and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
)

KNOBS = {
    "people wait in line": "more slots",
    "words stall": "smaller budget",
    "a long first wait": "larger budget",
    "slow and full": "another machine",
}


def turning(complaint: str, *others: str) -> list[dict[str, str]]:
    """Return copies of KNOBS, in each of which one complaint has another of the given choices."""
    return [KNOBS | {complaint: other} for other in others]


knobs = Exercise(
    name="knobs",
    todo="write one of CHOICES for each complaint.",
    cases=[Case((complaint,), complaint, expected_in_words="another choice") for complaint in KNOBS],
    right_answer=KNOBS,
    run_case=operator.getitem,
    wrong_answers=[
        "those in line have no slot; a budget deals out the tokens of those who have one.",
        *turning("people wait in line", "smaller budget", "larger budget"),
        "one step with the whole book takes 130 ms, on any number of slots: a smaller budget cuts it up.",
        *turning("words stall", "more slots", "larger budget", "another machine"),
        "slots are free and nobody waits but for this prompt: its chunks are too small.",
        *turning("a long first wait", "more slots", "smaller budget", "another machine"),
        "words are late without any prompt beside them: no budget changes that, and the machine is full.",
        *turning("slow and full", "smaller budget", "larger budget"),
    ],
    success="a line wants slots, stalls a smaller budget, slow prompts a larger one, a full machine another.",
)
