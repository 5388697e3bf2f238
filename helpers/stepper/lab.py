"""What the lab counts, as js/lab.js does: passes as if the prompt had another length, and what adds up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.cost.layers import Kind, State, Window
from helpers.cost.models import CARDS, MODELS
from helpers.cost.step import pairs_of, step_time
from helpers.stepper.board import Counted
from helpers.stepper.format import VIEW, fill, unit
from helpers.stepper.moment import Moment
from helpers.trace import Pass, Run, spread

LAB = VIEW["lab"]
COUNTED = "tokens", "pairs", "written", "read", "again_tokens"


@dataclass(frozen=True)
class Counts:
    """Of one user, in one layer and of one head: tokens processed, query-key pairs, rows written and read.

    `again_tokens`, `again_pairs`: what a cache spares, or what is processed again without one.
    """

    tokens: int
    pairs: int
    written: int
    read: int
    again_tokens: int
    again_pairs: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def tokens_at(step: Pass, prompt: int, length: int) -> tuple[int, int, int]:
    """Return the tokens of a recorded pass if the prompt had `length`: processed, before them, and anew."""
    part = step.parts[0]
    recorded = part.queries[-1] + 1
    seen = recorded + length - prompt
    counts = len(part.queries), len(spread(part.new))
    tokens, anew = (seen if n == recorded else n for n in counts)  # as many, unless the prompt is among them
    return tokens, seen - tokens, anew


def widest(layers: Sequence[Kind]) -> Kind:
    """Return the kind of layer whose queries see most: full attention, or else the widest window."""

    def reach(kind: Kind) -> float:
        return 0 if isinstance(kind, State) else kind.window if isinstance(kind, Window) else math.inf

    return max(layers, key=reach)


def counts_of(step: Pass, prompt: int, length: int, kind: Kind, keeps: bool) -> Counts:
    """Return what one pass counts; `keeps`: its rows are kept."""
    tokens, before, anew = tokens_at(step, prompt, length)
    seen = tokens + before
    read = min(before, kind.window - 1) if isinstance(kind, Window) else before
    rows = (tokens, read) if keeps else (0, 0)
    again = seen - anew
    return Counts(tokens, pairs_of(kind, before, tokens), *rows, again, pairs_of(kind, 0, again))


def accumulated(run: Run, index: int, prompt: int, length: int, kind: Kind) -> tuple[Counts, Counts]:
    """Return the counts of a pass, and of all up to it; the training reference is in no sum."""

    def counts(step: Pass) -> Counts:
        return counts_of(step, prompt, length, kind, run.cache != "none" and step.phase != "training")

    so_far = (counts(step) for step in run.passes[: index + 1] if step.phase != "training")
    return counts(run.passes[index]), sum(so_far, Counts(0, 0, 0, 0, 0, 0))


def counted(moments: Sequence[Moment]) -> Counted:
    """Count passes as the lab does at first: as if the prompt were longer than the recorded one."""
    model, card = MODELS[LAB["model"]], CARDS[LAB["card"]]
    prompt, length = moments[0].trace.sequences[0].prompt, LAB["tokens"]
    names = {**LAB["counts"], "again_tokens": LAB["counts"]["spared"][0]}
    bars = VIEW["step_time"]["bars"]
    heads = [f"{names[one]} ({LAB['so far']})" for one in COUNTED]
    heads += [bars["compute"], bars["memory"], f"{LAB['now']}, {VIEW['step_time']['least'][0]}", "bound"]
    lines: dict[str, list[str]] = {name: [] for name in heads}
    for moment in moments:
        now, so_far = accumulated(moment.run, moment.index, prompt, length, widest(model.layers))
        tokens, before, _ = tokens_at(moment.event, prompt, length)
        training = moment.event.phase == "training"
        step = step_time(model, card, before, new_tokens=tokens, logits=None if training else 1)
        sums = ["" if training else f" ({getattr(so_far, one):,})" for one in COUNTED]
        cells = [f"{getattr(now, one):,}{added}" for one, added in zip(COUNTED, sums, strict=True)]
        parts = step.attention + step.products, step.rows + step.weights, step.total
        cells += [*(unit(seconds, "s") for seconds in parts), step.bound]
        for line, cell in zip(lines.values(), cells, strict=True):
            line.append(cell)
    how = fill(LAB["length"]["as if"], tokens=length, prompt=prompt)
    return lines, f"{model.name}, {card.name}", [how]
