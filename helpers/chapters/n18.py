"""The figures and the exercises of notebook 18, speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from helpers import sampling
from helpers.check.exercise import Case, Exercise
from helpers.drawing.canvas import Picture, Sheet, spread_apart
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, TEXT, pluralize, printable, shorten, text_width
from helpers.plots.measured import set_log_scale

BAR_HEIGHT, MAX_COLUMN_WIDTH = 24, 120  # px: height of a bar, maximum width of a word's column
CURVES: list[tuple[str, Any, str]] = [  # colour, dashes and marker of each curve
    ("generated", "-", "s"), ("key", (0, (6, 2.5)), "o"), ("query", (0, (1.5, 1.8)), "D"),
]  # fmt: skip


def draft_verification(text: Sequence[str], drafted: Sequence[str], chosen: Sequence[str]) -> Picture:
    """Draw the verification of up to 4 drafted words by one pass of the model.

    The boxes of accepted words are filled. The first rejected word is struck out, because the model's choice
    replaces it. The words after it are grey.

    Args:
        text: the words before the draft.
        drafted: the drafted words.
        chosen: the model's choice at the position of each drafted word and at the position after the draft.
    """
    output = sampling.accept(drafted, chosen)  # type: ignore[arg-type]
    a = len(output) - 1
    new = f"1 pass, {pluralize(len(output), 'new token')}"

    def draw(sheet: Sheet) -> None:
        step = min(MAX_COLUMN_WIDTH, (sheet.width - 36) / (len(drafted) + 1))
        sheet.note(18, 18, shorten(f"… {' '.join(text)}", sheet.width - 36, SMALL), colour="ink")
        for y, name, words in ((48, "drafted", drafted), (118, "the model, in one pass", chosen)):
            sheet.note(18, y, name)
            for n, word in enumerate(words):
                own, rejected = (n == a and words is mine for mine in (chosen, drafted))
                x, wide, middle = 18 + step * n, step - 6, y + 29
                kind = "key" if n < a else "generated" if own else ""
                fill, edge = (f"{kind} fill", kind) if kind else ("none", "line")
                sheet.box(x, y + 14, wide, 30, fill=fill, edge=edge, line=2 if own else 1)
                shown, colour = shorten(word, wide - 6, SMALL, bold=own), "soft" if n > a else "ink"
                sheet.note(x + wide / 2, middle, shown, at="center", colour=colour, bold=own)
                if rejected:
                    reach = text_width(shown, SMALL) / 2 + 5
                    ends = (x + wide / 2 - reach, middle), (x + wide / 2 + reach, middle)
                    sheet.line(*ends, width=1.6)
        sheet.text(18, 190, new, bold=True)

    struck = "all accepted"
    if a < len(drafted):
        struck = f"{printable(drafted[a])} is struck out and {printable(chosen[a])} put in"
    alt = (
        f"After {' '.join(map(printable, text))}. Drafted: {' '.join(map(printable, drafted))}. "
        f"The model, in one pass: {' '.join(map(printable, chosen))}. {a} accepted; {struck}. {new}."
    )
    return Picture(draw, alt)


def round_times(rounds: Mapping[str, tuple[int, float, float, float]]) -> Picture:
    """Draw two bars per drafter: the time of a round, and the time of its tokens without drafts.

    Without drafts, each token takes one decode step. The unit of the times is the time of a decode step.

    Args:
        rounds: maps the name of each drafter to (k, time of the k drafts, time of the verification, mean
            number of new tokens per round).
    """
    kinds = {"a round: its drafts,": "key", "then the verification": "query"}
    kinds["its tokens, a decode step each"] = "generated"
    lanes = {}
    for name, (k, drafts, verification, tokens) in rounds.items():
        spent = [(drafts / k, "key")] * k + [(verification, "query")]
        given = [(1.0, "generated")] * int(tokens) + [(tokens % 1, "generated")]
        takes, gives = f"takes {drafts + verification:.2f}", f"gives {tokens:.2f} tokens"
        gain = f"{tokens / (drafts + verification):.2f} times as fast"
        lanes[name] = gain, {takes: spent, gives: given}

    def draw(sheet: Sheet) -> None:
        y = draw_legend(sheet, kinds)
        scale = min(
            (sheet.width - 44 - text_width(output, SMALL)) / sum(size for size, _ in lane)
            for _, both in lanes.values()
            for output, lane in both.items()
        )
        for name, (gain, both) in lanes.items():
            y += 22
            sheet.text(18, y, name, bold=True)
            for output, lane in both.items():
                x, y = 18.0, y + BAR_HEIGHT
                for size, colour in lane:
                    if scale * size > 1:
                        draw_bar_part(sheet, x, y - 10, scale * size, BAR_HEIGHT - 4, colour)
                    x += scale * size
                sheet.note(x + 8, y, output)
            y += BAR_HEIGHT
            sheet.note(18, y, f"so {gain}", colour="ink")
            y += 10

    each = "; ".join(f"{printable(name)}: {', '.join(both)}: {gain}" for name, (gain, both) in lanes.items())
    return Picture(draw, f"Rounds to scale, 1 is the time of a decode step. {each}.")


def probability_overlap(
    words: Sequence[str], target_probabilities: Sequence[Fraction], draft_probabilities: Sequence[Fraction]
) -> Picture:
    """Draw one bar per word, which compares the word's probabilities in the model and in the draft.

    The first segment of the bar is the smaller of the two probabilities. The second is their difference.

    Args:
        words: the words.
        target_probabilities: probability p of each word in the model.
        draft_probabilities: probability q of each word in the draft.
    """
    lines = [
        (word, a, b, min(a, b))
        for word, a, b in zip(words, target_probabilities, draft_probabilities, strict=True)
    ]
    kinds = {"both give: accepted": "key", "q over p: rejected": "", "p over q: left over": "generated"}

    def draw(sheet: Sheet) -> None:
        y = draw_legend(sheet, kinds)
        scale = (sheet.width - 36) / float(max(*target_probabilities, *draft_probabilities)) * 0.94
        for word, mine, drafted, both in lines:
            y += 22
            sheet.text(18, y, word, bold=True)
            sheet.note(sheet.width - 18, y, f"p = {mine}, q = {drafted}", at="right")
            wide, rest = scale * float(both), scale * float(abs(mine - drafted))
            draw_bar_part(sheet, 18, y + 14, wide, BAR_HEIGHT, "key")
            if rest:
                draw_bar_part(
                    sheet, 18 + wide, y + 14, rest, BAR_HEIGHT, "generated" if mine > drafted else ""
                )
            y += BAR_HEIGHT + 20

    each = "; ".join(
        f"{printable(word)}: p {mine}, q {drafted}, both give {both}"
        + (f", left over {mine - drafted}" if mine > drafted else "")
        + (f", rejected {drafted - mine}" if mine < drafted else "")
        for word, mine, drafted, both in lines
    )
    return Picture(draw, f"{each}. Both together give {sum((x[3] for x in lines), Fraction(0))}.")


def draw_legend(sheet: Sheet, entry_colours: Mapping[str, str]) -> float:
    """Draw a legend at the top of a sheet. Return the y position below it, in px.

    Args:
        sheet: the sheet to draw on.
        entry_colours: maps the text of each entry to its colour, or to "" for a dashed outline.
    """
    for n, (name, fill) in enumerate(entry_colours.items()):
        draw_bar_part(sheet, 18, 14 + 22 * n, 12, 12, fill)
        sheet.note(38, 20 + 22 * n, name, colour="ink")
    return 20.0 + 22 * len(entry_colours)


def draw_bar_part(sheet: Sheet, x: float, y: float, wide: float, high: float, colour: str) -> None:
    """Draw a segment of a bar. If the colour is "", the segment is not filled and has a dashed outline."""
    fill, edge = (f"{colour} fill", colour) if colour else ("none", "ink")
    sheet.box(x, y, wide, high, fill=fill, edge=edge, line=1.4, radius=0, dashed=not colour)


def break_even(
    users: Sequence[int], steps_by_case: Mapping[str, Sequence[float]], tokens_per_round: float
) -> Picture:
    """Draw the time of a verification against the number of users, up to 3 cases.

    A horizontal line shows how many tokens a round gives. The area above it is shaded, because there a round
    takes longer than its tokens would take one by one.

    Args:
        users: numbers of users, in ascending order.
        steps_by_case: maps the name of each case to the time of a verification for each number of users. The
            unit is the time of a decode step for as many users.
        tokens_per_round: mean number of new tokens per round.
    """
    cases = {name: np.asarray(steps, dtype=float) for name, steps in steps_by_case.items()}
    most = 1.12 * max(steps.max() for steps in cases.values())
    lasts = [format_digits(steps[-1], 2) for steps in cases.values()]

    def draw(sheet: Sheet) -> None:
        top, right = 74.0 + 22 * len(cases), sheet.width - 26 - text_width("0.0", TEXT, bold=True)
        base = top + 250
        sheet.heading("a verification, in decode steps")
        for n, (name, (colour, dashes, _)) in enumerate(zip(cases, CURVES, strict=False)):
            y = 46.0 + 22 * n
            sheet.line((18, y), (46, y), colour=colour, width=2.4, dashes=dashes)
            sheet.note(56, y, shorten(name, sheet.width - 74, SMALL), colour="ink")
        axes = sheet.add_axes(40, top, right, base, "users at once")
        set_log_scale(axes.xaxis)
        axes.set(xlim=(users[0] / 1.15, users[-1] * 1.15), ylim=(0, most))
        line = sheet.data_to_sheet(axes, users[0], tokens_per_round)[1]
        axes.axhspan(tokens_per_round, most, color="faint", alpha=0.6, lw=0, zorder=0)
        sheet.note(right - 6, top + 14, "drafts lose", at="right", colour="ink", bold=True)
        sheet.line((40, line), (right, line), width=1.6)
        gives = f"a round gives {format_digits(tokens_per_round, 3)} tokens"
        sheet.note(right - 6, base - 14, "drafts gain", at="right", colour="ink", bold=True)
        sheet.note(46, line + 13, gives, colour="ink")
        ends = [sheet.data_to_sheet(axes, users[-1], steps[-1])[1] for steps in cases.values()]
        places = spread_apart(ends, 20, top, base - 10)
        for steps, place, last, (colour, dashes, marker) in zip(
            cases.values(), places, lasts, CURVES, strict=False
        ):
            points = [sheet.data_to_sheet(axes, n, y) for n, y in zip(users, steps, strict=True)]
            sheet.line(*points, colour=colour, width=2.4, dashes=dashes)
            axes.plot(users, steps, color=colour, lw=0, marker=marker, mfc=colour, mec=colour, ms=6)
            sheet.text(right + 8, place, last, bold=True, colour=colour)

    each = "; ".join(
        f"{printable(name)}: "
        + ", ".join(f"{format_digits(t, 2)} at {n:,}" for n, t in zip(users, steps, strict=True))
        for name, steps in cases.items()
    )
    gives = f"A round gives {format_digits(tokens_per_round, 3)} tokens: above that, drafts lose"
    return Picture(draw, f"A verification in decode steps, against users at once. {each}. {gives}.")


def count_accepted(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """Return how many drafted words are accepted, which is all before the first that differs.

    Args:
        drafted: token ids of the drafted words.
        chosen: token ids of the model's choices, one more than `drafted` has.
    """
    return len(sampling.accept(drafted, chosen)) - 1


accept = Exercise(
    name="accept",
    todo="let accept return the new tokens: accepted drafts, and one of the model's own.",
    cases=[
        *[([5, 6, 7, 8], [5, 6, 1, 9, 2]), ([5, 6, 7], [5, 1, 7, 3])],
        Case(
            ([5, 6], [5, 6, 7]),
            failure_hint="where every draft is accepted, the model's token comes after the last.",
        ),
        *[([5, 6], [4, 6, 7]), ([5, 6], [6, 5, 7])],
        Case(([], [3]), failure_hint="without a draft, the model's own token is the only new one."),
    ],
    right_answer=sampling.accept,
    wrong_answers=[
        "the model's own token is missing: the pass has chosen it too, after the last draft that agrees.",
        lambda d, c: d[: count_accepted(d, c)],
        "tokens after the first that differs are of no use: they were chosen after a different text.",
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[count_accepted(d, c)]],
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[-1]],
        "the rejected draft was kept: the model's own token replaces it.",
        lambda d, c: [*d[: count_accepted(d, c) + 1], c[count_accepted(d, c)]],
        lambda d, c: d[: count_accepted(d, c) + 1],
        "all drafts accepted is the best case: k tokens, and one more after them.",
        lambda d, c: [*d[: count_accepted(d, c)], *c[count_accepted(d, c) : len(d)][:1]],
        lambda d, c: [*d[: -(len(d) - count_accepted(d, c))], c[count_accepted(d, c)]],
    ],
    success="of 4 drafts the first two agree: 3 new tokens. All of k accepted: k + 1.",
)


def residual(p: Any, q: Any) -> Any:
    """Return p - q with 0 instead of negative values. The result is not scaled to sum to 1."""
    return np.maximum(p - q, 0)


def accept_with_residual(residual_of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a wrong version of `accept_or_resample` that uses another residual.

    It accepts a token with probability min(1, p / q), as is right. If it rejects the token, it returns
    `residual_of(p, q)`.
    """
    return lambda p, q, token, u: None if u * q[token] < p[token] else residual_of(p, q)


def accept_with_test(accepts: Callable[[Any, Any, int, float], bool]) -> Callable[..., Any]:
    """Return a wrong version of `accept_or_resample` that accepts other tokens.

    It accepts a token if `accepts(p, q, token, u)` is true. If it rejects the token, it returns the residual,
    scaled to sum to 1, as is right.
    """
    return lambda p, q, token, u: None if accepts(p, q, token, u) else residual(p, q) / residual(p, q).sum()


U_MAY_BE_0 = (
    "u may be exactly 0. A token with p = 0 must be rejected even then, so accept if u < p / q, and not if "
    "u equals it."
)

accept_or_resample = Exercise(
    name="accept_or_resample",
    todo="let accept_or_resample return None, or the probabilities of the token to draw instead.",
    cases=[
        Case((np.array(p), np.array(q), token, u), f"p = {p}, q = {q}, token {token}, u = {u}", hint)
        for p, q, token, u, hint in [
            *[([0.1, 0.6, 0.3], [0.5, 0.25, 0.25], *drawn, "") for drawn in [(0, 0.6), (0, 0.15), (2, 0.99)]],
            *[
                ([0.5, 0.2, 0.3], [0.0, 1.0, 0.0], 1, 0.5, ""),
                ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 2, 0.15, ""),
            ],
            ([0.7, 0.0, 0.3], [0.4, 0.6, 0.0], 1, 0.0, U_MAY_BE_0),
        ]
    ],
    right_answer=sampling.accept_or_resample,
    wrong_answers=[
        "no residual: drawing from p again gives tokens that are drafted often another chance.",
        accept_with_residual(lambda p, q: p),
        "the residual is not scaled: probabilities sum to 1.",
        accept_with_residual(residual),
        "upside down: accept with probability min(1, p / q). Where p is over q, that is always.",
        accept_with_test(lambda p, q, token, u: u * p[token] < q[token]),
        "comparing with the most likely token of p is right for greedy replies; drawn ones get biased.",
        accept_with_test(lambda p, q, token, u: token == p.argmax()),
        lambda p, q, token, u: None if token == p.argmax() else p,
    ],
    success="a token with p over q is always accepted; one with p / q = 0.2 at u = 0.15, and not at 0.6.",
)
