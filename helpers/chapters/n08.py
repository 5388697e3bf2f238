"""The record of a training run, and the figures of notebook 08, trained here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.model.contributions import NameContributions

TRAINING_RECORDS_FILE = Path(__file__).parent / "data" / "training.json"


class TrainingRecord(NamedTuple):
    """Measurements of a model after some batches of training, at the last word of `shipped.DIARY`, `by`."""

    batches: int
    name_weight: float  # the attention weight of the head `shipped.NAME_HEAD` on the name
    probability: float  # probability of the name as the next word
    n_signed_right: int  # how many of 50 held-out diaries are signed with the right name
    loss: float  # mean loss over 64 fresh texts, in nats per token
    name_loss: float  # mean of -ln p of the right name at the end of the 50 diaries, in nats
    contributions: NameContributions  # what each part of the model adds to the logit of the name
    contributions_head_off: NameContributions  # the same with the head `shipped.NAME_HEAD` off


def load_training_records() -> list[TrainingRecord]:
    """Return the records of the shipped model's training, in order of batches.

    They are made by `tools/training.py`.
    """
    stored = json.loads(TRAINING_RECORDS_FILE.read_text(encoding="utf-8"))
    names = "contributions", "contributions_head_off"
    return [TrainingRecord(**one | {name: NameContributions(*one[name]) for name in names}) for one in stored]


def watched_run(records: Sequence[TrainingRecord]) -> Picture:
    """Draw two losses of a training run, and below them what its name head attends to and what it signs.

    Args:
        records: the records of the training, in order of batches.
    """
    batches = [one.batches for one in records]
    panels = [
        {
            "loss: all words": ([one.loss for one in records], "ink"),
            "loss: the name alone": ([one.name_loss for one in records], "generated"),
        },
        {
            "weight of head 3 on Mia": ([one.name_weight for one in records], "query"),
            "share of 50 names right": ([one.n_signed_right / 50 for one in records], "generated"),
        },
    ]

    def draw(sheet: Sheet) -> None:
        for n, curves in enumerate(panels):
            top = 24 + 242.0 * n
            label = "" if n == 0 else "batches of training"
            axes = sheet.add_axes(52, top + 48, sheet.width - 24, top + 188, label)
            axes.set(xlim=(0, batches[-1]), ylim=(0, 1.08 * max(max(ys) for ys, _ in curves.values())))
            for k, (name, (ys, colour)) in enumerate(curves.items()):
                sheet.text(18, top + 22 * k, name, colour=colour, bold=True)
                axes.plot(batches, ys, color=colour, lw=2.4, marker="o", ms=4)

    points = "; ".join(
        f"{one.batches}: loss {one.loss}, of the name {one.name_loss}, weight {one.name_weight}, "
        f"{one.n_signed_right} names right"
        for one in records
    )
    return Picture(draw, f"A training run, by batches. {points}.")


def moving_median(values: Sequence[float], n_each_side: int) -> list[float]:
    """Return, for each value, the median of the value and its neighbours.

    Args:
        values: the values.
        n_each_side: the number of neighbours on each side. Near the ends of the list, fewer neighbours are
            used, but always equally many on both sides.
    """
    sides = [min(i, n_each_side, len(values) - 1 - i) for i in range(len(values))]
    return [float(np.median(values[i - side : i + side + 1])) for i, side in enumerate(sides)]


def loss_curve(losses: Sequence[float], untrained_loss: float) -> Picture:
    """Draw the moving median of a training run's losses as a curve.

    A pale band around the curve shows the minimum and the maximum loss of every few steps. The number at the
    end of the curve is the median of the last losses, at most 20.

    Args:
        losses: the loss of each training step.
        untrained_loss: the loss of a model that has learned nothing, which is ln V.
    """
    raw, steps = np.asarray(losses, dtype=float), len(losses)
    smooth = moving_median(raw.tolist(), min(12, steps // 24))
    end = float(np.median(raw[-max(1, min(20, steps // 10)) :]))
    each = -(-steps // 150)  # steps per point; at most 150 points, because a page stores the picture as text
    starts = np.arange(0, steps, each)
    low, high = np.minimum.reduceat(raw, starts), np.maximum.reduceat(raw, starts)

    def draw(sheet: Sheet) -> None:
        right = sheet.width - 56
        sheet.heading("loss")
        axes = sheet.add_axes(52, 40, right, 262, "steps of training")
        axes.set(xlim=(1, steps), ylim=(0, 1.08 * max(raw.max(), untrained_loss)))
        axes.fill([*starts + 1, *starts[::-1] + 1], [*low, *high[::-1]], fc="line", ec="line", lw=1)
        axes.plot([*starts + 1, steps], [*np.array(smooth)[starts], smooth[-1]], color="ink", lw=2.2)
        sheet.text(right + 8, sheet.data_to_sheet(axes, steps, end)[1], format_digits(end, 2), bold=True)
        y = sheet.data_to_sheet(axes, 1, untrained_loss)[1]
        sheet.line((52, y), (right, y), colour="soft", dashes=(0, (5, 4)))
        name = f"learned nothing: ln V = {format_digits(untrained_loss, 2)}"
        sheet.note(right, y + (-12 if y > 58 else 14), name, at="right")

    moves = "falls" if end < raw[0] else "goes"
    alt = (
        f"The loss of {steps:,} steps {moves} from {format_digits(raw[0], 2)} to {format_digits(end, 2)}. "
        f"A dashed line at ln V = {format_digits(untrained_loss, 2)}: a model that has learned nothing."
    )
    return Picture(draw, alt)
