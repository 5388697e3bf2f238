"""Figures of serving: who has which slot when, what a long prompt costs the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, need, plain, shorten
from helpers.plots.measured import curves

GROWS = 10_000  # ms: who waits this long stands in a line that grows as long as people come
Steps = Sequence[Mapping[int, str]]  # who runs in each step, by the slot


def slots(runs: Mapping[str, Steps], n_slots: int) -> Picture:
    """Draw slots against numbered steps, a block for each request, one run over the other; idle is hatched.

    Args:
        runs: steps of each run, by its name: who has which slot, from 0.
        n_slots: rows.

    Raises:
        ValueError: a run has over 20 steps.
    """
    longest = max(map(len, runs.values()))
    need(longest <= 20, f"{longest} steps in the longest run; expected at most 20 to draw")
    idle = {name: sum(n_slots - len(step) for step in steps) for name, steps in runs.items()}

    def draw(sheet: Sheet) -> None:
        left, high = (18.0, 26.0) if sheet.narrow else (74.0, 30.0)
        wide, top = (sheet.width - left - 18) / longest, 22.0
        for name, steps in runs.items():
            heading = f"{name}: {counted(len(steps), 'step')}"
            sheet.text(18, top, shorten(heading, sheet.width - 36, bold=True), bold=True)
            begin_y = top + 20
            for slot in range(n_slots):
                y = begin_y + high * slot
                if not sheet.narrow:
                    sheet.note(left - 10, y + high / 2, f"slot {slot + 1}", at="right")
                for who, begin, end in stretches(steps, slot):
                    _block(sheet, who, left + wide * begin, y, wide * (end - begin), high, wide)
            for n in range(len(steps)):
                x = left + wide * (n + 1)
                sheet.line((x, begin_y), (x, begin_y + high * n_slots + 4), colour="line", width=1)
                if wide >= 20 or (n + 1) % 5 == 0:  # where there is room for a number
                    sheet.note(x - wide / 2, begin_y + high * n_slots + 12, str(n + 1), at="center")
            top = begin_y + high * n_slots + 46

    alt = "; ".join(
        f"{plain(name)}: {counted(len(steps), 'step')}, {idle[name]} of {n_slots * len(steps)} places idle, "
        + ", ".join(
            f"slot {slot + 1} "
            + " ".join(f"{who or 'idle'} {end - begin}" for who, begin, end in stretches(steps, slot))
            for slot in range(n_slots)
        )
        for name, steps in runs.items()
    )
    return Picture(draw, f"Slots against steps. {alt}.")


def stretches(steps: Steps, slot: int) -> list[tuple[str, int, int]]:
    """Return who has a slot from which step to which; "" for nobody."""
    found: list[tuple[str, int, int]] = []
    for n, step in enumerate(steps):
        who = step.get(slot, "")
        if found and found[-1][0] == who:
            found[-1] = (who, found[-1][1], n + 1)
        else:
            found.append((who, n, n + 1))
    return found


def _block(sheet: Sheet, who: str, x: float, y: float, wide: float, high: float, step: float) -> None:
    """A request as a filled box, named in its first step, or idle steps as a hatched one."""
    x, y, wide, high = x + 1.5, y + 1.5, wide - 3, high - 3
    if who:
        sheet.box(x, y, wide, high, fill="generated fill", edge="generated")
        return sheet.text(x + step / 2 - 1.5, y + high / 2, shorten(who, step - 4), at="center")
    sheet.box(x, y, wide, high, edge="line")
    for n in range(1, int((wide + high) / 9)):
        low, far = 9.0 * n - high, 9.0 * n
        start = (x + max(low, 0), y + high + min(low, 0))
        sheet.line(start, (x + min(far, wide), y + max(far - wide, 0)), colour="line", width=1)


def stall(budgets: Sequence[int], ttft: Sequence[float], gap: Sequence[float]) -> Picture:
    """Draw what a budget of tokens does to a long prompt and to those who run beside it, milliseconds."""
    series = {"TTFT of the long prompt": ttft, "longest wait of others": gap}
    across = "tokens of a step, at most"
    return curves("milliseconds", "ms", across, budgets, series, "xy")


def choices(waits: Mapping[tuple[int, int], tuple[float, float]], most: tuple[float, float]) -> Picture:
    """Draw what each choice of slots and budget lets people wait; filled where both waits are short enough.

    Where the first word takes ten seconds or more the line is said to grow.

    Args:
        waits: milliseconds to the first word and between two words, by slots and budget.
        most: milliseconds that each may take.
    """
    slots, budgets = (sorted({pair[n] for pair in waits}) for n in (0, 1))
    fine = [pair for pair, both in waits.items() if all(a <= b for a, b in zip(both, most, strict=True))]

    def draw(sheet: Sheet) -> None:
        left, top = (52.0 if sheet.narrow else 110.0), 110.0
        wide, high = (sheet.width - left - 12) / len(budgets), 54.0
        for n, line in enumerate(
            ("above: ms to the first word", "below: ms, longest wait between two words")
        ):
            sheet.note(12, 16 + 19 * n, line)
        sheet.note(left, 64, "tokens of a step, at most", colour="ink")
        sheet.note(12, 88, "slots", colour="ink")
        for n, budget in enumerate(budgets):
            sheet.text(left + wide * (n + 0.5), 88, f"{budget:,}", at="center", size=SMALL, bold=True)
        for k, slot in enumerate(slots):
            sheet.text(12, top + high * (k + 0.5), str(slot), bold=True)
            for n, budget in enumerate(budgets):
                x, y = left + wide * n, top + high * k
                good = (slot, budget) in fine
                fill, edge = ("generated fill", "generated") if good else ("none", "line")
                sheet.box(x + 2, y + 2, wide - 4, high - 4, fill=fill, edge=edge)
                for at, ms, limit in zip((16, 37), waits[slot, budget], most, strict=True):
                    middle, late = x + wide / 2, ms > limit
                    colour = "soft" if late else "ink"
                    sheet.note(middle, y + at, short_ms(ms), at="center", colour=colour, bold=not late)

    sentence = "; ".join(
        f"{slot} slots, {budget:,}: {' and '.join(map(short_ms, both))}"
        for (slot, budget), both in waits.items()
    )
    good = ", ".join(f"{slot} slots with {budget:,}" for slot, budget in fine) or "none"
    alt = "Milliseconds to the first word, and the longest wait between two, by slots and budget"
    return Picture(draw, f"{alt}. {sentence}. Short enough: {good}.")


def short_ms(ms: float) -> str:
    """Write milliseconds; where a line grows, no wait can be told."""
    return "grows" if ms >= GROWS else f"{ms:,.0f}"
