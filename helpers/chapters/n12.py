"""The predictions, the exercise and the figures of notebook 12, the lower bound of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess, check_ratio_guess
from helpers.cost import roofline
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Roofline
from helpers.cost.step import step_time
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, text_width

LAPTOP = Roofline(flops_per_second=400e9, bytes_per_second=50e9)  # ridge 8


def check_64_user_step_guess(guess: Any) -> Guess:
    """Compare a guess with how many times as long a decode step takes for 64 users as for one user.

    The options are 1, 4, 16 and 64. The step is that of Llama-3.1-8B on an H100, with 500 cached tokens per
    user.
    """
    one, many = (step_time(MODELS["Llama-3.1-8B"], CARDS["H100"], 500, n).total for n in (1, 64))
    why = f"{1000 * one:.1f} ms for one, {1000 * many:.1f} for 64: {many / one:.1f} times."
    return check_ratio_guess(guess, (1, 4, 16, 64), many / one, why)


def check_tokens_per_second_guess(guess: Any) -> Guess:
    """Compare a guess with the maximum tokens per second for one user of Llama-3.1-8B on an H100.

    The answer is a whole number, computed from the time that it takes to read the weights.
    """
    seconds = step_time(MODELS["Llama-3.1-8B"], CARDS["H100"], 1).weights
    why = f"{3350 * seconds:.2f} GB at 3.35 TB a second take {1000 * seconds:.2f} ms."
    return Guess(guess, round(1 / seconds), why)


def tokens_at_ridge(
    card: Any, nbytes_per_number: float, operations_per_number: float = 2, round_tokens: Any = math.ceil
) -> float:
    """Return how many tokens a pass needs to reach the ridge point of a machine.

    The default values of the last two arguments give the right answer. Other values give typical wrong
    answers.

    Args:
        card: the machine, a `Card` or a `Roofline`.
        nbytes_per_number: bytes per weight of the matrix.
        operations_per_number: operations per weight and token.
        round_tokens: function that rounds the number of tokens.
    """
    return round_tokens(roofline.ridge_point(card) * nbytes_per_number / operations_per_number)


batch_at_ridge = Exercise(
    name="batch_at_ridge",
    todo="let batch_at_ridge return a whole number of tokens.",
    cases=[
        Case((CARDS["H100"], 2), "batch_at_ridge of an H100 at 2 bytes"),
        Case((CARDS["A100"], 2), "batch_at_ridge of an A100 at 2 bytes"),
        Case((CARDS["H100"], 1), "batch_at_ridge of an H100 at 1 bytes"),
        Case((LAPTOP, 4), "batch_at_ridge of a laptop at 4 bytes"),
        Case((Roofline(40e9, 50e9), 4), "batch_at_ridge of a machine that computes little at 4 bytes"),
    ],
    right_answer=tokens_at_ridge,
    wrong_answers=[
        "each number of the matrix gives 2 operations a token, no more and no fewer.",
        partial(tokens_at_ridge, operations_per_number=1),
        partial(tokens_at_ridge, operations_per_number=4),
        "the size of a number is left out: fewer bytes to read need fewer tokens.",
        lambda machine, each: tokens_at_ridge(machine, 1),
        lambda machine, each: tokens_at_ridge(machine, 2),
        lambda machine, each: tokens_at_ridge(machine, 2, round_tokens=float),
        "rounded down, or not at all: there is no part of a token, and one token fewer is still too few.",
        *[partial(tokens_at_ridge, round_tokens=rounded) for rounded in (math.floor, float, round)],
        "one too many where it comes out even: round up, and no further.",
        partial(tokens_at_ridge, round_tokens=lambda tokens: math.floor(tokens) + 1),
    ],
    success="296 tokens on an H100 at 2 bytes, 148 at 1 byte with the same arithmetic, 16 on a laptop at 4.",
)


def layer_timeline() -> Picture:
    """Draw the timeline of a layer, once for one user and once for many users.

    It shows when weights and KV entries are read from memory, and when compute is busy.

    Source of the idea: Horace He 2022, Making deep learning go brrrr from first principles.
    """
    shares = {"one user": (0.03, 0.12), "many users at once": (0.27, 1.0)}  # for KV entries; of busy compute

    def draw(sheet: Sheet) -> None:
        left, room = 86.0, sheet.width - 104.0
        sheet.note(left + room, 24, "not to scale", at="right")
        for n, (title, (entries, busy)) in enumerate(shares.items()):
            x, y = left, 46.0 + 104 * n
            sheet.text(18, y - 22, title, bold=True)
            for line, name in enumerate(["bandwidth", "compute"]):
                sheet.note(left - 8, y + 26 * line + 11, name, at="right", colour="ink")
                sheet.box(left, y + 26 * line, room * (0.73 + entries), 22, fill="faint", radius=2)
            for what, share, colour in (
                ("weights", 0.28, "query"),
                ("KV entries", entries, "key"),
                ("weights", 0.45, "query"),
            ):
                sheet.box(x, y, room * share, 22, fill=f"{colour} fill", edge=colour, radius=2)
                if text_width(what, SMALL) < room * share:
                    sheet.note(x + room * share / 2, y + 11, what, at="center", colour="ink")
                late, works = (0.0, busy) if what == "weights" else (0.3, 0.2)
                sheet.box(x + late * room * share, y + 26, works * room * share, 22, fill="ink", radius=2)
                x += room * share

    return Picture(
        draw,
        "One layer in time, not to scale: weights arrive over the bandwidth, then KV entries, then weights. "
        "For one user the KV entries take hardly any time, and compute works for a small part of it. For "
        "many users the weights take as long as before and the KV entries longer. Compute is busy all the "
        "time while weights come, and hardly while KV entries come.",
    )


def step_bars(title: str, steps: Mapping[str, tuple[float | None, float]]) -> Picture:
    """Draw measured steps as bars. The part up to the lower bound is coloured, the rest grey.

    Args:
        title: the heading.
        steps: maps the name of each step to (lower bound or None, measured time), in milliseconds. Without a
            bound, the whole bar is grey.
    """
    most = max(ms for _, ms in steps.values())
    known = any(bound for bound, _ in steps.values())

    def draw(sheet: Sheet) -> None:
        scale, y = (sheet.width - 114) / most, 50.0
        sheet.heading(title)
        for n, (name, colour) in enumerate([("lower bound", "query"), ("rest", "soft")] if known else []):
            sheet.square(24 + 130 * n, 44, 12, colour)
            sheet.note(36 + 130 * n, 44, name)
            y = 74.0
        for name, (bound, ms) in steps.items():
            sheet.note(18, y, name, colour="ink")
            sheet.box(18, y + 10, ms * scale, 26, fill="soft", radius=0)
            if bound:
                sheet.box(18, y + 10, bound * scale, 26, fill="query", radius=0)
                for x, part in ((bound / 2, bound), ((bound + ms) / 2, ms - bound)):
                    sheet.text(18 + x * scale, y + 23, f"{part:.2f}", at="center", size=SMALL, colour="paper")
            sheet.text(26 + ms * scale, y + 23, f"{ms:.2f} ms", bold=True)
            y += 60

    sentence = "; ".join(
        f"{name}: " + (f"lower bound {bound:.2f}, rest {ms - bound:.2f}, " if bound else "") + f"{ms:.2f}"
        for name, (bound, ms) in steps.items()
    )
    return Picture(draw, f"{title}, milliseconds. {sentence}.")


def two_terms(
    users: Sequence[int],
    terms_ms: Mapping[str, Sequence[tuple[float, float, float]]],
    full: Mapping[str, int],
) -> Picture:
    """Draw the two terms of a step against the number of users, one panel for each length of text.

    All panels have the same scale.

    Args:
        users: the numbers of users.
        terms_ms: maps the title of each panel to one triple for each of `users`: the term of the weights, the
            term of the KV entries, and the time for which compute is busy, in milliseconds.
        full: maps titles of panels to the number of users with which memory is full.
    """
    most = max(weights + entries for triples in terms_ms.values() for weights, entries, _ in triples)

    def draw(sheet: Sheet) -> None:
        sheet.heading("ms a step, at least")
        for n, (name, colour) in enumerate([("weights", "query fill"), ("KV entries", "key fill")]):
            sheet.square(24 + 90 * n, 46, 12, colour)
            sheet.note(36 + 90 * n, 46, name)
        sheet.line((212, 46), (236, 46), width=1.8, dashes=(0, (3, 2)))
        sheet.note(242, 46, "time to compute")
        width = (sheet.width - 108) / len(terms_ms)
        for n, (title, triples) in enumerate(terms_ms.items()):
            left = 52 + n * (width + 40)
            sheet.text(left, 76, title, bold=True)
            axes = sheet.add_axes(left, 92, left + width, 300, "users")
            axes.set(xlim=(0, users[-1]), ylim=(0, 1.08 * most))
            axes.set_xticks([users[-1] * k // 4 for k in range(5)])
            weights, entries, busy = zip(*triples, strict=True)
            totals = [a + b for a, b in zip(weights, entries, strict=True)]
            axes.fill([users[0], *users, users[-1]], [0, *weights, 0], color="query fill", lw=0)
            axes.fill([*users, *users[::-1]], [*totals, *weights[::-1]], color="key fill", lw=0)
            axes.plot(users, weights, color="query", lw=1.4)
            axes.plot(users, totals, color="key", lw=1.8)
            axes.plot(users, busy, color="ink", lw=1.8, ls=(0, (3, 2)))
            if title in full:
                x, top = sheet.data_to_sheet(axes, full[title], 1.04 * most)
                _, base = sheet.data_to_sheet(axes, full[title], 0)
                sheet.line((x, top), (x, base), colour="soft")
                sheet.note(x - 6, top + 8, f"memory is full: {full[title]}", at="right", colour="ink")

    sentence = "; ".join(
        f"{title}, {n} user{'s' * (n > 1)}: weights {a:.2f}, KV entries {b:.2f}, compute busy {c:.2f}"
        for title, triples in terms_ms.items()
        for n, (a, b, c) in [(users[0], triples[0]), (users[-1], triples[-1])]
    )
    limits = "".join(f" With {title}, memory is full with {n} users." for title, n in full.items())
    return Picture(draw, f"Milliseconds of a step, by its two terms. {sentence}.{limits}")
