"""Figures of serving: who has which slot when, what a long prompt costs the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import counted, need, shorten, told
from helpers.plots.measured import curves

Steps = Sequence[Mapping[int, str]]  # who runs in each step, by the slot


def slots(runs: Mapping[str, Steps], n_slots: int) -> Picture:
    """Draw slots against steps, a block for each request, one run over the other; idle slots are hatched.

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
            for slot in range(n_slots):
                y = top + 20 + high * slot
                if not sheet.narrow:
                    sheet.note(left - 10, y + high / 2, f"slot {slot + 1}", at="right")
                for who, begin, end in stretches(steps, slot):
                    _block(sheet, who, left + wide * begin, y, wide * (end - begin), high)
            top += 20 + high * n_slots + 34
            sheet.note(left + wide * len(steps), top - 22, "steps", at="right")

    alt = "; ".join(
        f"{told(name)}: {counted(len(steps), 'step')}, {idle[name]} of {n_slots * len(steps)} places idle, "
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


def _block(sheet: Sheet, who: str, x: float, y: float, wide: float, high: float) -> None:
    """A request as a filled box, or idle steps as a hatched one."""
    x, y, wide, high = x + 1.5, y + 1.5, wide - 3, high - 3
    if who:
        sheet.box(x, y, wide, high, fill="generated fill", edge="generated")
        return sheet.text(x + wide / 2, y + high / 2, shorten(who, wide - 4), at="center")
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
