"""The explorer, the figures and the exercises of notebook 16, serving many."""

from __future__ import annotations

import math
import operator
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

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
REACHED_SHARE = 0.7  # share of the card's peak bandwidth and compute that is reached, as others have measured
N_REQUESTS = 150
GROWING_WAIT_MS = 5000  # a wait this long means a queue that grows while requests arrive
SlotSteps = Sequence[Mapping[int, str]]  # one mapping per step, from each slot in use to its request


class P99Waits(NamedTuple):
    """The 99th percentiles of two waits over all requests, in milliseconds."""

    first_word_ms: float  # the wait for the first word
    gap_ms: float  # the longest wait between two words


WaitsBySetting = Mapping[tuple[int, int], P99Waits]  # the keys are (slots, token budget)

# Maps (users, prompt tokens, reply tokens) to the median time of a decode step in milliseconds, for
# Llama-2-7B in 16 bits on an A100 80 GB.
# Source: LMDeploy 0.1.0a1, docs/en/benchmark/a100_fp16.md at commit 3e391df, 2023.
PUBLISHED_STEP_MS = {(1, 128, 2048): 10, (16, 128, 2048): 15, (32, 128, 2048): 21, (64, 128, 2048): 30}


class MeasuredStep(NamedTuple):
    """The measured time of a decode step, and its lower bound."""

    tokens_per_user: int  # number of cached tokens halfway through the reply
    lower_bound_ms: float
    measured_ms: float
    bound_share: float  # lower bound / measured


def measured_and_predicted_steps() -> dict[str, MeasuredStep]:
    """Return the published decode steps and their lower bounds, by number of users."""
    lines = {}
    for (users, prompt, reply), ms in PUBLISHED_STEP_MS.items():
        tokens = prompt + reply // 2
        bound = 1000 * step_time(MODELS["Llama-2-7B"], CARDS["A100"], tokens, users).total
        lines[str(users)] = MeasuredStep(tokens, bound, ms, bound / ms)
    return lines


@lru_cache(64)
def simulate_waits(service: Service, requests_per_second: float, prefix_hits: bool) -> WaitsBySetting:
    """Simulate a service with each combination of a number of slots and a token budget.

    If a simulation never uses all of its slots, a smaller number of slots that is sufficient gives the same
    waits. These waits are copied instead of simulated.

    Args:
        service: the service.
        requests_per_second: mean number of requests that arrive per second.
        prefix_hits: whether the KV entries of earlier turns are found in the cache.

    Returns:
        The waits by (slots, token budget).
    """
    waits: dict[tuple[int, int], P99Waits] = {}
    arrivals = fleet.chat_arrivals(service, N_REQUESTS, 0, requests_per_second, prefix_hits)
    longest = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
    for budget in BUDGETS:
        most, last = SLOTS[-1] + 1, SLOTS[-1]  # most slots in use at the same time, with `last` slots
        for slots in reversed(SLOTS):
            if most <= slots:
                waits[slots, budget] = waits[last, budget]
                continue
            machine = fleet.Machine(service.model, service.card, REACHED_SHARE, 1e12, slots, budget)
            scheduler, used = Scheduler(PageManager(slots, longest, prefix_caching=False), slots, budget), [0]

            def step(
                plan: Plan, machine: Any = machine, scheduler: Any = scheduler, used: Any = used
            ) -> float:
                used.append(len(scheduler.running))
                return machine.plan_seconds(plan)

            waits[slots, budget] = P99Waits(*fleet.p99_waits([*simulate(scheduler, arrivals, step).values()]))
            most, last = max(used), slots
    return waits


def count_slots_that_fit(service: Service, prefix_hits: bool) -> int:
    """Return the number of slots whose KV entries fit in memory next to the weights.

    With `prefix_hits`, the KV entries of shared tokens are stored only once, and those of all idle chats
    remain in memory.
    """
    own = service.kv_nbytes(service.mean_context - service.shared_tokens * prefix_hits)
    kept = service.weights_nbytes + prefix_hits * (
        service.shared_nbytes + service.idle_chats * service.idle_nbytes
    )
    return max(0, int((service.memory_gib * GIB - kept) // own))


class Limit(NamedTuple):
    """A minimum or maximum for the number of slots or for the token budget."""

    name: str
    formula: str  # the formula in words
    value: int


def slot_and_budget_limits(service: Service) -> list[Limit]:
    """Return the limits for the number of slots and for the token budget.

    The KV entries of earlier turns are assumed not to be found in the cache. The minimum number of slots
    follows from Little's law, if every wait between two words is as long as the SLO allows.
    """
    slo, prompt = service.itl_slo, service.mean_context - service.reply_tokens // 2
    slots = math.ceil(service.mean_replying(slo))
    tokens = math.ceil(service.requests_per_second * (prompt + service.reply_tokens) * slo)
    step = partial(step_time, bandwidth_reached=REACHED_SHARE, compute_reached=REACHED_SHARE)

    def seconds(budget: int) -> float:
        chunk = budget - slots  # the last chunk of a prompt
        texts = [*[(service.mean_context, 1)] * slots, (max(0, prompt - chunk), chunk)]
        return step(service.model, service.card, texts).total

    most = bisect(range(slots + 1, 2**16), slo, key=seconds) + slots
    return [
        Limit("slots, at least", "requests a second × tokens of a reply × SLO between words", slots),
        Limit("slots, at most", "memory for rows ÷ rows of a text", count_slots_that_fit(service, False)),
        Limit("budget, at least", "tokens that come in a second × SLO between words", tokens),
        Limit("budget, at most", "the largest step within the SLO, by the equation", most),
    ]


@dataclass(frozen=True)
class WaitMap:
    """A picture of the 99th-percentile waits for each combination of a number of slots and a token budget.

    Each cell shows two waits in milliseconds: for the first word, and between two words. The cell is filled
    if each wait is within its limit and the slots fit in memory.
    """

    waits: WaitsBySetting  # as `simulate_waits` returns them
    max_waits_ms: P99Waits  # the longest waits that are allowed
    n_slots_that_fit: int  # number of slots that fit into memory
    note: str = "For 99 of 100, ms: above to the first word, below between two words."

    @property
    def settings_within_limits(self) -> list[tuple[int, int]]:
        """The pairs (slots, budget) whose waits are within `max_waits_ms` and whose slots fit in memory."""
        return [
            pair
            for pair, both in self.waits.items()
            if pair[0] <= self.n_slots_that_fit
            and all(a <= b for a, b in zip(both, self.max_waits_ms, strict=True))
        ]

    def draw(self, sheet: Sheet) -> None:
        """Draw the map on a sheet."""
        left, top, high = 52.0, 64.0, 54.0
        wide = (sheet.width - left - 12) / len(BUDGETS)
        sheet.note(left, 18, "tokens of a step, at most", colour="ink")
        sheet.note(12, 42, "slots", colour="ink")
        for n, budget in enumerate(BUDGETS):
            sheet.text(left + wide * (n + 0.5), 42, f"{budget:,}", at="center", size=SMALL, bold=True)
        y, too_many = top, [slots for slots in SLOTS if slots > self.n_slots_that_fit]
        for slots in SLOTS:
            if [slots] == too_many[:1]:
                sheet.line((12, y + 3), (sheet.width - 12, y + 3), dashes=(0, (5, 4)))
                sheet.note(
                    12,
                    y + 16,
                    f"below: more than {self.n_slots_that_fit} do not fit into memory",
                    colour="ink",
                )
                y += 28
            sheet.text(12, y + high / 2, str(slots), bold=True)
            for n, budget in enumerate(BUDGETS):
                x, fine = left + wide * n, (slots, budget) in self.settings_within_limits
                fill, edge = ("generated fill", "generated") if fine else ("none", "line")
                sheet.box(x + 2, y + 2, wide - 4, high - 4, fill=fill, edge=edge)
                for at, ms, limit in zip((16, 37), self.waits[slots, budget], self.max_waits_ms, strict=True):
                    style: dict[str, Any] = {"colour": "soft" if ms > limit else "ink", "bold": ms <= limit}
                    sheet.note(x + wide / 2, y + at, format_wait_ms(ms), at="center", **style)
            y += high

    def in_words(self) -> str:
        """Return the text alternative of the map."""
        sentence = "; ".join(
            f"{slots} slots, {budget:,}: {' and '.join(map(format_wait_ms, both))}"
            for (slots, budget), both in sorted(self.waits.items())
        )
        good = (
            ", ".join(
                f"{slots} slots with {budget:,}" for slots, budget in sorted(self.settings_within_limits)
            )
            or "none"
        )
        alt = "Milliseconds to the first word, and the longest wait between two, by slots and budget"
        return f"{alt}. {sentence}. {self.n_slots_that_fit} slots fit. Short enough: {good}."

    def html(self) -> str:
        """Return the picture of the map as HTML."""
        return Picture(self.draw, self.in_words()).html()


def format_wait_ms(ms: float) -> str:
    """Return a wait in milliseconds as text, or "grows" if it is so long that the queue must be growing."""
    return "grows" if ms >= GROWING_WAIT_MS else f"{ms:,.0f}"


class SlotBudgetExplorer(Explorer):
    """An explorer that shows with which slots and token budgets a service on one card meets both SLOs.

    The waits are simulated. The simulation takes its step times from `step_time`. At first, the KV entries of
    earlier turns are not found in the cache.

    Args:
        service: the service that the initial settings describe.
        ttft_slo: initial limit on the time to the first word, in seconds.
    """

    title = "Explorer: slots and budget, by what comes and by two SLOs"

    def __init__(self, service: Service, ttft_slo: float) -> None:
        self.service, self.ttft_slo = service, ttft_slo

    def controls(self) -> dict[str, Any]:
        one = self.service
        ways = [("processed again", False), ("found (notebook 17)", True)]
        return {
            "arrivals": choice_knob("requests/s", (1, 2, 3, 4, 5), one.requests_per_second),
            "message": choice_knob("new tokens", (100, 300, 1000, 3000), one.message_tokens),
            "reply": choice_knob("reply tokens", (50, 100, 250, 500), one.reply_tokens),
            "hits": labelled_widget("SelectionSlider", "earlier turns", options=ways, value=False),
            "first": choice_knob("first word, ms", (100, 200, 300, 500, 1000, 2000), 1000 * self.ttft_slo),
            "gap": choice_knob("between, ms", (10, 15, 20, 25, 40, 60), 1000 * one.itl_slo),
        }

    def service_with(self, arrivals: float, message: int, reply: int, **_: Any) -> Service:
        """Return the explorer's service, changed to the current settings.

        Args:
            arrivals: number of requests per second.
            message: number of tokens in a message.
            reply: number of tokens in a reply.
        """
        chats = arrivals / self.service.turns
        card = self.service.card.name
        return replace(
            self.service, card=card, message_tokens=message, reply_tokens=reply, chats_per_second=chats
        )

    def picture(self, **settings: Any) -> Any:
        service, hits = self.service_with(**settings), settings["hits"]
        waits = simulate_waits(service, settings["arrivals"], hits)
        return WaitMap(
            waits, P99Waits(settings["first"], settings["gap"]), count_slots_that_fit(service, hits)
        )

    def sentence_html(self, **settings: Any) -> str:
        found = self.picture(**settings)
        service = self.service_with(**settings)
        tokens = (
            service.message_tokens if settings["hits"] else service.mean_context - service.reply_tokens // 2
        )
        good = ", ".join(
            f"{slots} slots with {budget:,}" for slots, budget in sorted(found.settings_within_limits)
        )
        return (
            f"A prompt has {tokens:,} tokens to process, on average. "
            f"{'Both SLOs are met with ' + good if good else 'No choice meets both SLOs'}."
        )


def choice_knob(label: str, choices: Sequence[float], initial: float) -> Any:
    """Return a slider that chooses one of several numbers. The initial value is added to the choices."""
    return number_slider(label, sorted({*choices, round(initial)}), round(initial))  # type: ignore[arg-type]


def slot_timeline(runs: Mapping[str, SlotSteps], n_slots: int) -> Picture:
    """Draw one chart per run, with a line per slot and a column per step.

    The steps in which a request uses a slot form one block. Idle slots are hatched.

    Args:
        runs: maps the name of each run to its steps, of which there are at most 20. A step maps slots,
            counted from 0, to requests.
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
                for who, begin, end in slot_occupancy(steps, slot):
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
            + " ".join(f"{who or 'idle'} {end - begin}" for who, begin, end in slot_occupancy(steps, slot))
            for slot in range(n_slots)
        )
        for name, steps in runs.items()
    )
    return Picture(draw, f"Slots against steps. {alt}.")


class Occupancy(NamedTuple):
    """A sequence of steps in which a slot is used by the same request, or is idle."""

    request: str  # "" while the slot is idle
    begin: int  # index of the first step, from 0
    end: int  # index of the step after the last


def slot_occupancy(steps: SlotSteps, slot: int) -> list[Occupancy]:
    """Return, in order of time, which request uses a slot in which steps.

    Args:
        steps: the steps of a run. Each maps the slots in use to their requests.
        slot: the slot, counted from 0.
    """
    found: list[Occupancy] = []
    for who, each in groupby(step.get(slot, "") for step in steps):
        begin = found[-1][2] if found else 0
        found.append(Occupancy(who, begin, begin + len([*each])))
    return found


def _hatched(sheet: Sheet, x: float, y: float, wide: float, high: float) -> None:
    sheet.box(x, y, wide, high, edge="line")
    for n in range(1, int((wide + high) / 9)):
        low, far = 9.0 * n - high, 9.0 * n
        start = (x + max(low, 0), y + high + min(low, 0))
        sheet.line(start, (x + min(far, wide), y + max(far - wide, 0)), colour="line", width=1)


def ttft_and_gap_by_budget(
    budgets: Sequence[int], ttft_ms: Sequence[float], gap_ms: Sequence[float]
) -> Picture:
    """Draw how the token budget affects a long prompt, and the requests that run at the same time.

    Args:
        budgets: the token budgets (tokens per step), in ascending order.
        ttft_ms: for each budget, the time to the first token of the long prompt, in milliseconds.
        gap_ms: for each budget, the longest wait between two words of the other requests, in milliseconds.
    """
    series = {"TTFT of the long prompt": ttft_ms, "longest wait of others": gap_ms}
    across = "tokens of a step, at most"
    return line_chart("milliseconds", "ms", across, budgets, series, "xy")


def schedule_prompt_tokens(
    waiting_tokens: list[int],
    n_running: int,
    token_budget: int,
    whole_prompts: bool = False,
    allow_overtaking: bool = False,
) -> list[int]:
    """Return how many tokens of each waiting prompt are processed in the next step.

    Args:
        waiting_tokens: for each prompt, the number of tokens that are not processed yet, in order of arrival.
        n_running: number of running requests. Each takes one token of the budget.
        token_budget: maximum number of tokens in the step.
        whole_prompts: whether a prompt that does not fit is not processed at all, instead of in chunks.
        allow_overtaking: with `whole_prompts`, whether a prompt that fits may overtake one that does not.
    """
    left, given = token_budget - n_running, []
    for tokens in waiting_tokens:
        fits = tokens <= left
        given.append(tokens if fits else 0 if whole_prompts else left)
        left -= given[-1] if fits or allow_overtaking or not whole_prompts else left
    return given


next_step = Exercise(
    name="next_step",
    todo="let next_step return a list: how many tokens each prompt runs.",
    cases=[
        *[([5, 12, 4], 3, 10), ([20], 2, 8), ([3, 3], 4, 16)],
        *[([4, 2], 6, 6), ([7, 2], 1, 6), ([], 2, 4)],
    ],
    right_answer=schedule_prompt_tokens,
    wrong_answers=[
        "the running come first: each takes one token of the budget.",
        lambda waiting, running, budget: schedule_prompt_tokens(waiting, 0, budget),
        "a prompt that does not fit runs in chunks: it gets what is left.",
        partial(schedule_prompt_tokens, whole_prompts=True),
        partial(schedule_prompt_tokens, whole_prompts=True, allow_overtaking=True),
        "the whole of each: what one gets, the next cannot get too.",
        lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
        lambda waiting, running, budget: [*waiting],
        "shared out evenly: the one who came first gets all it can use.",
        lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
    ],
    success="3 who run and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
)

KNOB_FOR_COMPLAINT = {
    "people wait in line": "more slots",
    "words stall": "smaller budget",
    "a long first wait": "larger budget",
    "slow and full": "another machine",
}


def with_wrong_choices(complaint: str, *wrong_choices: str) -> list[dict[str, str]]:
    """Return one wrong answer per wrong choice.

    Each is a copy of KNOB_FOR_COMPLAINT in which the complaint has this wrong choice.
    """
    return [KNOB_FOR_COMPLAINT | {complaint: other} for other in wrong_choices]


knobs = Exercise(
    name="knobs",
    todo="write one of CHOICES for each complaint.",
    cases=[
        Case((complaint,), complaint, expected_in_words="another choice") for complaint in KNOB_FOR_COMPLAINT
    ],
    right_answer=KNOB_FOR_COMPLAINT,
    run_case=operator.getitem,
    wrong_answers=[
        "those in line have no slot; a budget deals out the tokens of those who have one.",
        *with_wrong_choices("people wait in line", "smaller budget", "larger budget"),
        "one step with the whole book takes 130 ms, on any number of slots: a smaller budget cuts it up.",
        *with_wrong_choices("words stall", "more slots", "larger budget", "another machine"),
        "slots are free and nobody waits but for this prompt: its chunks are too small.",
        *with_wrong_choices("a long first wait", "more slots", "smaller budget", "another machine"),
        "words are late without any prompt beside them: no budget changes that, and the machine is full.",
        *with_wrong_choices("slow and full", "smaller budget", "larger budget"),
    ],
    success="a line wants slots, stalls a smaller budget, slow prompts a larger one, a full machine another.",
)
