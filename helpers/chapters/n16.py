"""The figures and the exercise of notebook 16, serving many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import NamedTuple, Protocol

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from helpers.check.exercise import Exercise
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, pluralize, printable, require, shorten, text_width
from helpers.plots.batches import FILLS

SlotSteps = Sequence[Mapping[int, str]]  # one mapping per step, from each slot in use to its request
WaitsOfRuns = Sequence[tuple[float, float]]  # the P99 of TTFT and the P99 of ITL of each run, ms
SLOS_MS = 1000.0, 25.0  # for the P99 of TTFT and the P99 of ITL
WAITS = "TTFT", "ITL"


class ServedRequest(Protocol):
    """A request of the notebook that has been served: when it arrived, started and got its tokens, in s."""

    name: object
    arrived: float
    started: float | None
    times: list[float]


def step_and_mask(step: Sequence[tuple[str, int, int]]) -> Picture:
    """Draw the attention mask of a step: a row for each token that runs, a column for each KV entry.

    Args:
        step: for each request its name, the number of its tokens that are computed, and that run now.
    """
    colours = {name: colour for (name, *_), colour in zip(step, FILLS, strict=False)}
    requests = list(colours)
    keys = [(name, place) for name, computed, n in step for place in range(computed + n)]
    queries = [(name, place) for name, computed, n in step for place in range(computed, computed + n)]
    mask = [[name == its and place <= at for its, place in keys] for name, at in queries]
    columns = {name: [n for n, (its, _) in enumerate(keys) if its == name] for name in requests}

    def draw(sheet: Sheet) -> None:
        left, top, gap = 76.0, 62.0, 8.0
        side = (sheet.width - left - 18 - gap * (len(requests) - 1)) / len(keys)
        xs = [left + side * n + gap * requests.index(name) for n, (name, _) in enumerate(keys)]
        sheet.text(left, 14, "KV entries, by position", bold=True)
        sheet.text(18, 36, "runs", bold=True)
        for name in requests:
            first, last = columns[name][0], columns[name][-1]
            sheet.note(xs[first], 36, name, colour="ink", bold=True)
            sheet.note(xs[first] + side / 2, 52, str(keys[first][1]), at="center")
            sheet.note(xs[last] + side / 2, 52, str(keys[last][1]), at="center")
        for row, (name, position) in enumerate(queries):
            y = top + side * row + gap * requests.index(name)
            sheet.note(left - 10, y + side / 2, f"{name} {position}", at="right", colour="ink")
            for x, (its, place), attends in zip(xs, keys, mask[row], strict=True):
                fill = f"{colours[its]} fill" if attends else "none"
                edge = colours[its] if attends else "faint"
                sheet.box(x + 1, y + 1, side - 2, side - 2, fill=fill, edge=edge, radius=2)
                if (name, position) == (its, place):
                    sheet.disc(x + side / 2, y + side / 2, 2.5, colours[its])

    parts = [f"{name} runs {pluralize(n, 'token')} after {computed}" for name, computed, n in step]
    scored = f"{sum(map(sum, mask))} of {len(queries) * len(keys)} pairs are scored, none across requests"
    return Picture(draw, f"The mask of a step. {'; '.join(parts)}. {scored}.")


def cpu_and_card(ways: Mapping[str, Sequence[tuple[tuple[float, float], tuple[float, float]]]]) -> Picture:
    """Draw two lanes for each way to serve: when the CPU plans each step, and when the card computes it.

    Args:
        ways: maps the name of each way to its steps. A step has two pairs (begin, end), in ms: of its
            planning, and of its computing.
    """
    longest = max(steps[-1][1][1] for steps in ways.values())
    each = {name: steps[-1][1][1] - steps[-2][1][1] for name, steps in ways.items()}

    def draw(sheet: Sheet) -> None:
        left, high = 62.0, 30.0
        scale, y = (sheet.width - left - 34) / longest, 22.0
        for name, steps in ways.items():
            sheet.text(18, y, f"{name}: {each[name]:g} ms a step", bold=True)
            for lane, colour in enumerate(("query", "generated")):
                top = y + 20 + (high + 6) * lane
                sheet.note(left - 10, top + high / 2, ("CPU", "card")[lane], at="right")
                idle = left + scale * steps[0][lane][0], top, scale * (longest - steps[0][lane][0]), high
                sheet.box(*idle, fill="panel", radius=0)
                for n, step in enumerate(steps, 1):
                    begin, end = step[lane]
                    place = left + scale * begin + 1, top, scale * (end - begin) - 2, high
                    sheet.box(*place, fill=f"{colour} fill", edge=colour)
                    sheet.text(left + scale * (begin + end) / 2, top + high / 2, str(n), at="center")
            y += 20 + 2 * (high + 6)
            for ms in range(0, int(longest) + 1, 10):
                sheet.note(left + scale * ms, y + 8, f"{ms} ms" if ms else "0", at="center")
            y += 46

    alt = ". ".join(
        f"{printable(name)}, {each[name]:g} ms a step: "
        + ", ".join(
            f"step {n} planned {a:g} to {b:g}, computed {c:g} to {d:g}"
            for n, ((a, b), (c, d)) in enumerate(steps, 1)
        )
        for name, steps in ways.items()
    )
    return Picture(draw, f"The CPU and the card, in ms. {alt}.")


def slot_timeline(runs: Mapping[str, Sequence[Sequence[str]]], n_slots: int) -> Picture:
    """Draw one chart per run, with a row per slot and a column per step.

    A request keeps its slot until it has finished. The steps in which it has the slot form one block. Idle
    slots are hatched.

    Args:
        runs: maps the name of each run to its steps, of which there are at most 20. A step lists the names of
            the requests that run.
        n_slots: number of slots.
    """
    longest = max(map(len, runs.values()))
    require(longest <= 20, f"{longest} steps in the longest run; expected at most 20 to draw")
    slots = {name: slots_of_steps(steps, n_slots) for name, steps in runs.items()}
    idle = {name: sum(n_slots - len(step) for step in steps) for name, steps in slots.items()}

    def draw(sheet: Sheet) -> None:
        left, high = 74.0, 30.0
        wide, top = (sheet.width - left - 18) / longest, 22.0
        for name, steps in slots.items():
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
        for name, steps in slots.items()
    )
    return Picture(draw, f"Slots against steps. {alt}.")


def slots_of_steps(steps: Sequence[Sequence[str]], n_slots: int) -> list[dict[int, str]]:
    """Give each request the first free slot, for as long as it runs; return the slots in use in each step.

    Args:
        steps: the names of the requests that run in each step, at most `n_slots`.
        n_slots: number of slots.
    """
    slots: dict[int, str] = {}
    found = []
    for names in steps:
        slots = {slot: name for slot, name in slots.items() if name in names}
        for name in names:
            if name not in slots.values():
                slots[next(slot for slot in range(n_slots) if slot not in slots)] = name
        found.append(dict(slots))
    return found


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


def request_lanes(run: Sequence[ServedRequest], late: ServedRequest, n_before: int = 5) -> Picture:
    """Draw requests as lanes over time: in the queue, the chunks of the prompt, the reply.

    The picture ends soon after the first token of the late request, whose waits are written in its lane.

    Args:
        run: the requests of a run, in any order.
        late: one of them.
        n_before: the number of requests to show that arrived before it.
    """
    arrived = [request for request in run if request.arrived <= late.arrived]
    requests = sorted(arrived, key=lambda request: request.arrived)[-n_before - 1 :]
    zero, chosen = late.arrived, str(late.name)
    lanes: list[tuple[str, list[float]]] = []
    for request in requests:
        seconds = request.arrived, float(request.started or 0), request.times[0], request.times[-1]
        lanes.append((str(request.name), [second - zero for second in seconds]))
    _, begun, first, _ = lanes[-1][1]
    begin, end = min(ends[0] for _, ends in lanes) - 0.1, first + 0.35
    parts = [("queue", "panel", "soft"), ("its prompt, in chunks", "ink", "ink")]
    parts += [("its reply", "generated fill", "generated")]

    def draw(sheet: Sheet) -> None:
        left, high, top, x = 46.0, 30.0, 46.0, 18.0
        scale = (sheet.width - left - 18) / (end - begin)
        for name, fill, edge in parts:
            sheet.box(x, 13, 14, 14, fill=fill, edge=edge, radius=2)
            sheet.note(x + 21, 20, name)
            x += 21 + text_width(name, SMALL) + 18
        base = top + high * len(lanes) + 2
        for at in (0.0, begun, first):
            x = left + scale * (at - begin)
            sheet.line((x, top - 6), (x, base), colour="soft", width=1, dashes=(0, (3, 3)))
        for n, (name, ends) in enumerate(lanes):
            y = top + high * n
            sheet.text(left - 9, y + 12, name, at="right", size=SMALL, bold=name == chosen)
            for (part, fill, edge), start, stop in zip(parts, ends[:-1], ends[1:], strict=True):
                start, stop = max(start, begin), min(stop, end)
                if stop <= start:
                    continue
                at, wide = left + scale * (start - begin), scale * (stop - start)
                sheet.box(at, y, wide, 24, fill=fill, edge=edge, radius=2)
                message = f"{stop - start:.2f} s"
                if name == chosen and part != "its reply" and text_width(message, SMALL, bold=True) < wide:
                    colour = "paper" if fill == "ink" else "ink"
                    sheet.note(at + wide / 2, y + 12, message, at="center", colour=colour, bold=True)
        for tick in range(math.ceil(2 * begin), math.floor(2 * end) + 1):
            at = left + scale * (tick / 2 - begin)
            sheet.line((at, base), (at, base + 5), colour="soft", width=1)
            sheet.note(at, base + 15, f"{tick / 2:g}".replace("-", "\u2212"), at="center")
        sheet.note(sheet.width - 18, base + 36, f"seconds from the arrival of request {chosen}", at="right")

    sentence = "; ".join(
        f"{name} arrives at {a:.2f} s, is in the queue for {b - a:.2f}, its prompt takes {f - b:.2f}"
        for name, (a, b, f, _) in lanes
    )
    first_token = f"Request {chosen} gets its first token after {first:.2f} s"
    return Picture(draw, f"Requests over seconds. {sentence}. {first_token}.".replace("-", "\u2212"))


def waits_by_setting(panels: Mapping[str, Mapping[int, WaitsOfRuns]]) -> Picture:
    """Draw the P99 of TTFT and of ITL over a setting, of several runs: the median, and the range as a bar.

    A disc is filled if all runs keep the SLO in SLOS_MS.

    Args:
        panels: maps the heading of each panel to its settings, and each setting to the waits of its runs.
    """
    columns = {
        heading: {x: [sorted(column) for column in zip(*runs, strict=True)] for x, runs in settings.items()}
        for heading, settings in panels.items()
    }
    every = [[ms for panel in columns.values() for both in panel.values() for ms in both[k]] for k in (0, 1)]
    limits = [(min(*every[0], SLOS_MS[0]) / 1.4, 1.9 * max(every[0]))]
    limits += [(min(*every[1], SLOS_MS[1]) / 3.4, 1.9 * max(every[1]))]

    def draw(sheet: Sheet) -> None:
        sheet.line((18, 20), (46, 20), colour="value", dashes=(0, (2, 2)))
        sheet.note(54, 20, f"the SLO: {SLOS_MS[0] / 1000:g} s for TTFT, {SLOS_MS[1]:g} ms for ITL")
        for x, fill, text in ((32.0, "value", "kept in all runs"), (190.0, "paper", "broken in one or more")):
            sheet.disc(x, 44, 5, fill, "ink", 1)
            sheet.note(x + 22, 44, text)
        y = 44.0
        for heading, settings in columns.items():
            y += 38
            sheet.text(18, y, heading, bold=True)
            for k, name in enumerate(WAITS):
                sheet.note(18, y + 26, f"P99 of {name}", colour="ink")
                axes = sheet.add_axes(68, y + 40, sheet.width - 18, y + 144, "")
                axes.set(yscale="log", ylim=limits[k], xlim=(-0.5, len(settings) - 0.5))
                axes.set_xticks(range(len(settings)), [f"{x:,}" if k else "" for x in settings])
                _draw_waits(sheet, axes, [both[k] for both in settings.values()], SLOS_MS[k])
                y += 138
            y += 26
            sheet.bottom = y + 6  # nothing is written across

    sentences = []
    for heading, settings in columns.items():
        for x, both in settings.items():
            parts = []
            for name, slo, column in zip(WAITS, SLOS_MS, both, strict=True):
                low, middle, high = (_format_ms(ms) for ms in (column[0], median(column), column[-1]))
                kept = f"{sum(ms <= slo for ms in column)} of {len(column)}"
                parts.append(f"{name} {middle} ({low} to {high}), kept in {kept}")
            sentences.append(f"{heading}, {x:,}: {'; '.join(parts)}")
    return Picture(draw, f"P99 of TTFT and ITL, median and range. {'. '.join(sentences)}.")


def _draw_waits(sheet: Sheet, axes: Axes, columns: Sequence[Sequence[float]], slo: float) -> None:
    """Draw sorted waits, in ms, at 0, 1, … of axes: their ranges and medians, and the SLO."""
    _ticks_of_ms(axes, "y", [10, 25, 100, 250, 1000, 2000, 5000])
    axes.plot([-0.5, len(columns) - 0.5], [slo, slo], color="value", lw=1.2, ls=(0, (2, 2)))
    axes.plot(range(len(columns)), [median(column) for column in columns], color="ink", lw=1.4)
    for x, column in enumerate(columns):
        middle = median(column)
        axes.plot([x, x], [column[0], column[-1]], color="soft", lw=4)
        fill = "value" if column[-1] <= slo else "paper"
        axes.plot([x], [middle], "o", ms=9, mfc=fill, mec="ink", mew=1)
        below = slo < 1000 and middle <= slo  # where the SLO is not written over
        px, py = sheet.data_to_sheet(axes, x, column[0] if below else column[-1])
        sheet.note(px, py + (17 if below else -15), _format_ms(middle), at="center", colour="ink")


def _format_ms(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 999.5 else f"{ms / 1000:.2f} s"


def _ticks_of_ms(axes: Axes, axis: str, places: Sequence[float]) -> None:
    """Label a logarithmic axis of milliseconds at those of the places that are within its limits."""
    low, high = getattr(axes, f"get_{axis}lim")()
    one = getattr(axes, f"{axis}axis")
    one.set_minor_locator(NullLocator())
    getattr(axes, f"set_{axis}ticks")([ms for ms in places if low < ms < high])
    one.set_major_formatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms")


def both_waits(series: Mapping[str, Mapping[int, WaitsOfRuns]]) -> Picture:
    """Draw the P99 of ITL against the P99 of TTFT: a dot for each run, and a line through the medians.

    The corner in which both SLOs are kept is filled.

    Args:
        series: maps the name of each line, at most two, to its settings, and each setting to the waits of its
            runs. A setting is written next to its median.
    """
    every = [pair for settings in series.values() for runs in settings.values() for pair in runs]
    low, high = ([end(pair[k] for pair in every) for k in (0, 1)] for end in (min, max))
    medians = {
        name: {x: [median(column) for column in zip(*runs, strict=True)] for x, runs in settings.items()}
        for name, settings in series.items()
    }
    marks = list(zip(series, ("ink", "value"), ("paper", "value"), ("-", (0, (5, 2.5))), strict=False))

    def draw(sheet: Sheet) -> None:
        for n, (name, colour, fill, dashes) in enumerate(marks):
            sheet.line((18, 20 + 24 * n), (46, 20 + 24 * n), colour=colour, width=1.6, dashes=dashes)
            sheet.disc(32, 20 + 24 * n, 5, fill, colour, 1.4)
            sheet.note(54, 20 + 24 * n, name, colour="ink")
        top = 34.0 + 24 * len(marks)
        sheet.note(18, top, "P99 of ITL", colour="ink")
        axes = sheet.add_axes(68, top + 14, sheet.width - 18, top + 284, "P99 of TTFT")
        axes.set(xscale="log", yscale="log", xlim=(low[0] / 1.3, high[0] * 1.25))
        axes.set(ylim=(low[1] / 1.25, high[1] * 1.25))
        _ticks_of_ms(axes, "x", [700, 1000, 1500, 2000, 3000])
        _ticks_of_ms(axes, "y", [10, 15, 25, 50, 100])
        right, up = SLOS_MS
        corner = [0, right], [up, up], "value fill"
        axes.fill_between(*corner[:2], color=corner[2], zorder=0)
        axes.plot([right, right, 0.1], [0.1, up, up], color="value", lw=1.2, ls=(0, (2, 2)))
        sheet.note(76, top + 270, "both kept", colour="ink")
        for name, colour, fill, dashes in marks:
            for runs in series[name].values():
                axes.plot(*zip(*runs, strict=True), "o", ms=3, color=colour, alpha=0.45, mew=0)
            points = [*medians[name].values()]
            axes.plot(*zip(*points, strict=True), color=colour, lw=1.6, ls=dashes)
            axes.plot(*zip(*points, strict=True), "o", ms=9, mfc=fill, mec=colour, mew=1.4)
        for n, (name, colour, *_) in enumerate(marks):
            for x, (ttft, itl) in medians[name].items():
                px, py = sheet.data_to_sheet(axes, ttft, itl)
                above = n == 0 or x == max(medians[name])  # where the line does not pass
                place = px + (-7 if n else 9), py + (-13 if above else 13)
                sheet.note(*place, f"{x:,}", at="right" if n else "left", colour=colour)

    sentence = ". ".join(
        f"{name}: "
        + "; ".join(
            f"{x:,}: {_format_ms(ttft)} and {itl:.0f} ms, both SLOs kept in "
            f"{sum(all(a <= b for a, b in zip(run, SLOS_MS, strict=True)) for run in series[name][x])} of "
            f"{len(series[name][x])} runs"
            for x, (ttft, itl) in settings.items()
        )
        for name, settings in medians.items()
    )
    return Picture(draw, f"P99 of TTFT and of ITL, medians of runs. {sentence}.")


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
        "replies come first: each takes one token of the budget.",
        lambda waiting, running, budget: schedule_prompt_tokens(waiting, 0, budget),
        "a prompt that does not fit runs in chunks: it gets what is left.",
        partial(schedule_prompt_tokens, whole_prompts=True),
        partial(schedule_prompt_tokens, whole_prompts=True, allow_overtaking=True),
        "a prompt gets what is left at most: what one prompt gets, the next cannot have.",
        lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
        lambda waiting, running, budget: [*waiting],
        "shared out evenly: the prompt that came first gets all that it can use.",
        lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
    ],
    success="3 replies and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
)
