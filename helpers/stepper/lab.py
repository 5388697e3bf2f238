"""What the lab counts, as js/lab.js does: passes as if the prompt had another length, and what adds up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.cost.layers import Kind, State, Window
from helpers.cost.models import CARDS, MODELS
from helpers.cost.step import pairs_of, step_time
from helpers.stepper.format import VIEW, fill, unit
from helpers.stepper.moment import Moment
from helpers.trace import Pass, Run, spread

LAB = VIEW["lab"]


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


def in_words(moment: Moment) -> str:
    """A pass as the lab has it at first, in a sentence: what it counts, what has added up, its bound."""
    model, card = MODELS[LAB["model"]], CARDS[LAB["card"]]
    prompt, length = moment.trace.sequences[0].prompt, LAB["tokens"]
    now, so_far = accumulated(moment.run, moment.index, prompt, length, widest(model.layers))
    tokens, before, _ = tokens_at(moment.event, prompt, length)
    training = moment.event.phase == "training"
    step = step_time(model, card, before, new_tokens=tokens, logits=None if training else 1)
    lanes = {"compute": step.attention + step.products, "bandwidth": step.rows + step.weights}
    return fill(
        LAB["still"][0 if training else 1],
        **{**vars(now), **{f"{name}_so_far": count for name, count in vars(so_far).items()}},
        **{"title": moment.title, "length": length, "model": model.name, "card": card.name},
        **{name: unit(x, "s") for name, x in {**lanes, "total": step.total}.items()},
        bound=step.bound,
    )
