"""The measurements, the figures and the exercises of notebook 18, speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from helpers import sampling
from helpers.check.exercise import Case, Exercise
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, pluralize, printable, shorten, text_width
from helpers.model.cache import StaticCache
from helpers.model.generate import generate, prefill
from helpers.model.speculate import Drafter, EarlyExit, Speculation, speculate
from helpers.model.transformer import Transformer
from helpers.plots.measured import line_chart
from helpers.timing.steps import repeatable_pass
from helpers.timing.turns import Task, time_in_turns

BAR_HEIGHT, MAX_COLUMN_WIDTH = 24, 120  # px: height of a bar, maximum width of a word's column


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
    new = f"1 pass, {pluralize(len(output), 'new word')}"

    def draw(sheet: Sheet) -> None:
        step = min(MAX_COLUMN_WIDTH, (sheet.width - 36) / (len(drafted) + 1))
        sheet.note(18, 18, shorten(f"… {' '.join(text)}", sheet.width - 36, SMALL), colour="ink")
        for y, name, words in ((48, "guessed", drafted), (118, "the model, in one pass", chosen)):
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
        f"Behind {' '.join(map(printable, text))}. Guessed: {' '.join(map(printable, drafted))}. "
        f"The model, in one pass: {' '.join(map(printable, chosen))}. {a} accepted; {struck}. {new}."
    )
    return Picture(draw, alt)


class TimedRound(NamedTuple):
    """The mean times of a round, which consists of drafts and their verification.

    The unit of the times is the time of a pass over one word.
    """

    times: Sequence[float]  # time of each draft and, last, of the verification
    words_per_round: float  # mean number of new words
    speedup: float  # measured speedup of complete replies


def round_times(rounds_by_drafter: Mapping[str, TimedRound]) -> Picture:
    """Draw two bars per drafter: the time of a round, and the time of its words without drafts.

    Without drafts, each word takes one pass.

    Args:
        rounds_by_drafter: the round of each drafter, by the drafter's name.
    """
    kinds = {"a round: its drafts,": "key", "then the verification": "query"}
    kinds["its words, a pass each"] = "generated"
    lanes = {}
    for name, (parts, words, measured) in rounds_by_drafter.items():
        colours = ["key"] * (len(parts) - 1) + ["query"]
        ones = [1.0] * int(words) + [words % 1]
        gain = f"{words / sum(parts):.2f} times as fast, measured {measured:.2f}"
        takes, gives = f"takes {sum(parts):.2f}", f"gives {words:.2f} words"
        spent, given = zip(parts, colours, strict=True), ((one, "generated") for one in ones)
        lanes[name] = gain, {takes: [*spent], gives: [*given]}

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
                    if size:
                        draw_bar_part(sheet, x, y - 10, scale * size, BAR_HEIGHT - 4, colour)
                    x += scale * size
                sheet.note(x + 8, y, output)
            y += BAR_HEIGHT
            sheet.note(18, y, f"so {gain}", colour="ink")
            y += 10

    each = "; ".join(f"{printable(name)}: {', '.join(both)}: {gain}" for name, (gain, both) in lanes.items())
    return Picture(draw, f"Rounds to scale, 1 is the time of a pass of one word. {each}.")


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


def make_pass_task(model: Transformer, n_new: int) -> Task:
    """Return a task that runs a pass over `n_new` tokens after 64 cached tokens.

    The pass computes logits at the position of each new token, as a verification does.
    """
    cache = StaticCache(model.config, max_len=64 + n_new)
    prefill(model, torch.ones(1, 64, dtype=torch.int64), cache)
    tokens = torch.ones(1, n_new, dtype=torch.int64)

    return repeatable_pass(cache, torch.inference_mode()(partial(model, tokens, cache)))


class DraftedReplies(NamedTuple):
    """Measurements of replies that were generated with one drafter. The prefills are not included."""

    words_per_pass: float  # mean number of new words per pass
    seconds_per_word: float  # mean seconds per new word
    pass_sizes: list[int]  # words per pass, including drafted words; [] without a drafter


def time_replies_with_drafters(
    model: Transformer, prompts: Sequence[Sequence[int]], drafters: Mapping[str, tuple[Drafter, int] | None],
    max_new_tokens: int = 40, n_repeats: int = 5,
) -> dict[str, DraftedReplies]:  # fmt: skip
    """Generate replies to prompts with each drafter, and measure them.

    Every reply is generated `n_repeats` times. For each of its words, the shortest time is used.

    Args:
        model: the model.
        prompts: token ids of each prompt.
        drafters: maps names to pairs (drafter, number of words that it drafts per round). For None instead of
            a pair, replies are generated without drafts.
        max_new_tokens: maximum number of words in a reply.
        n_repeats: how many times each reply is generated.
    """
    seconds: dict[str, list[list[float]]] = {name: [] for name in drafters}
    ran: dict[str, list[int]] = {}
    for name, way in [*drafters.items()] * n_repeats:
        replies = [
            speculate(model, p, max_new_tokens, *way) if way else generate(model, p, max_new_tokens)
            for p in prompts
        ]
        seconds[name].append([second for reply in replies if [*reply] for second in reply.seconds[1:]])
        drafted = [reply.rounds[1:] for reply in replies if isinstance(reply, Speculation)]
        ran[name] = [1 + one.n_drafted for rounds in drafted for one in rounds]
    found = {}
    for name, turn in seconds.items():
        best = np.min(turn, axis=0)
        found[name] = DraftedReplies(len(best) / (len(ran[name]) or len(best)), best.mean(), ran[name])
    return found


def time_rounds(
    model: Transformer, prompts: Sequence[Sequence[int]], drafters: Mapping[str, tuple[Drafter, int]]
) -> dict[str, TimedRound]:
    """Time drafts, verifications and complete replies on this machine. The figure `round_times` draws them.

    The unit of the times is the time of a pass over one word. For `EarlyExit`, each drafted word counts as
    one pass of the draft layers over one word. For prompt lookup, drafts count as 0.

    Args:
        model: the model.
        prompts: token ids of each prompt.
        drafters: maps the name of each drafter to (drafter, number of words that it drafts per round).
    """
    tried, lengths = time_replies_with_drafters(model, prompts, {"": None, **drafters}), [1, 3, 5, 9]
    passes = {f"{T} words": make_pass_task(model, T) for T in lengths}
    passes |= {
        name: make_pass_task(drafter.draft_model, 1)
        for name, (drafter, _) in drafters.items()
        if isinstance(drafter, EarlyExit)
    }
    best = {name: timing.best for name, timing in time_in_turns(passes, turns=200, min_seconds=0).items()}
    word, found = best["1 words"], {}
    longer = [best[f"{T} words"] / word for T in lengths]
    for name, (_, k) in drafters.items():
        verify = float(np.interp(tried[name].pass_sizes, lengths, longer).mean())
        gain = tried[""].seconds_per_word / tried[name].seconds_per_word
        times = [best.get(name, 0.0) / word] * k + [verify]
        found[name] = TimedRound(times, tried[name].words_per_pass, gain)
    return found


def verification_steps_by_users(
    users: Sequence[int], verification_steps: Mapping[str, Sequence[float]], words_per_round: float
) -> Picture:
    """Draw the time of a verification against the number of users.

    Where this time, in decode steps, is below `words_per_round`, drafts make replies faster.

    Args:
        users: numbers of users, in ascending order.
        verification_steps: maps the name of each curve to the time of a verification for each number of
            users. The unit is the time of a decode step for as many users.
        words_per_round: mean number of new words per round.
    """
    lines = {**verification_steps, "words of a round": [words_per_round] * len(users)}
    return line_chart("verification, in steps", "", "users at once", users, lines, "x")


def count_accepted(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """Return how many drafted words are accepted, which is all before the first that differs.

    Args:
        drafted: token ids of the drafted words.
        chosen: token ids of the model's choices, one more than `drafted` has.
    """
    return len(sampling.accept(drafted, chosen)) - 1


accept = Exercise(
    name="accept",
    todo="let accept return the new words: drafted ones that are accepted, and one of the model's own.",
    cases=[
        *[([5, 6, 7, 8], [5, 6, 1, 9, 2]), ([5, 6, 7], [5, 1, 7, 3])],
        Case(
            ([5, 6], [5, 6, 7]),
            failure_hint="where every draft is accepted, the model's word comes after the last.",
        ),
        *[([5, 6], [4, 6, 7]), ([5, 6], [6, 5, 7])],
        Case(([], [3]), failure_hint="without a draft the model's own word is all there is."),
    ],
    right_answer=sampling.accept,
    wrong_answers=[
        "the model's own word is missing: the pass has chosen it too, behind the last that agrees.",
        lambda d, c: d[: count_accepted(d, c)],
        "words behind the first that differs are no use: they were chosen after another text.",
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[count_accepted(d, c)]],
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[-1]],
        "the rejected draft was kept: the model's own word stands in its place.",
        lambda d, c: [*d[: count_accepted(d, c) + 1], c[count_accepted(d, c)]],
        lambda d, c: d[: count_accepted(d, c) + 1],
        "all drafts accepted is the best case: k words, and one more behind them.",
        lambda d, c: [*d[: count_accepted(d, c)], *c[count_accepted(d, c) : len(d)][:1]],
        lambda d, c: [*d[: -(len(d) - count_accepted(d, c))], c[count_accepted(d, c)]],
    ],
    success="of 4 drafts the first two agree: 3 new words. All of k accepted: k + 1.",
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


accept_or_resample = Exercise(
    name="accept_or_resample",
    todo="let accept_or_resample return None, or the probabilities of the word to draw instead.",
    cases=[
        Case((np.array(p), np.array(q), token, u), f"p = {p}, q = {q}, token {token}, u = {u}")
        for p, q, token, u in [
            *[([0.1, 0.6, 0.3], [0.5, 0.25, 0.25], *drawn) for drawn in [(0, 0.6), (0, 0.15), (2, 0.99)]],
            *[([0.5, 0.2, 0.3], [0.0, 1.0, 0.0], 1, 0.5), ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 2, 0.15)],
            ([0.7, 0.0, 0.3], [0.4, 0.6, 0.0], 1, 0.0),
        ]
    ],
    right_answer=sampling.accept_or_resample,
    wrong_answers=[
        "no residual: drawing from p again gives words that were drafted often another chance.",
        accept_with_residual(lambda p, q: p),
        "the residual is not scaled: probabilities sum to 1.",
        accept_with_residual(residual),
        "upside down: a word that p likes more than q is always accepted, min(1, p / q).",
        accept_with_test(lambda p, q, token, u: u * p[token] < q[token]),
        "comparing with the best word of p is right for greedy replies; a drawn one gets biased.",
        accept_with_test(lambda p, q, token, u: token == p.argmax()),
        lambda p, q, token, u: None if token == p.argmax() else p,
    ],
    success="a word that p likes more is always accepted; one at p / q = 0.2 is at u = 0.15, and at 0.6 not.",
)
