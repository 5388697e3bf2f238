"""The predictions, the exercise and the figure of notebook 12, and published runs.

The notebook compares the published runs with the times that its equation gives.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess, check_ratio_guess
from helpers.cost import roofline
from helpers.cost.config import model_of
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.cost.roofline import Roofline
from helpers.cost.step import step_time
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, text_width


class PublishedRun(NamedTuple):
    """A published measurement: a model, the bits per weight, and the tokens per second for one user."""

    name: str
    model: PublishedModel
    weight_bits: float
    tokens_per_second: float


LAPTOP = Roofline(flops_per_second=400e9, bytes_per_second=50e9)  # ridge 8
LLAMA_2_70B = model_of(
    {
        **{"model_type": "llama", "_name_or_path": "Llama-2-70B", "num_hidden_layers": 80},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192},
        **{"intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096},
    }
)
# Tokens per second for one user on an A100, from https://github.com/meta-pytorch/gpt-fast (README of 2024).
# Weights in 4 bits take 5 bits each, because every 32 weights share a scale and a zero point of 16 bits each.
PUBLISHED_RUNS = (
    PublishedRun("Llama-2-7B, 16 bits", MODELS["Llama-2-7B"], 16, 104.9),
    PublishedRun("Llama-2-7B, 8 bits", MODELS["Llama-2-7B"], 8, 155.58),
    PublishedRun("Llama-2-7B, 4 bits", MODELS["Llama-2-7B"], 5, 196.8),
    PublishedRun("Llama-2-70B, 8 bits", LLAMA_2_70B, 8, 19.13),
    PublishedRun("Llama-2-70B, 4 bits", LLAMA_2_70B, 5, 25.25),
)


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
        "rounded down or not at all: a part of a token does not come, and one less is still too few.",
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
        for n, (title, (rows, busy)) in enumerate(shares.items()):
            x, y = left, 46.0 + 104 * n
            sheet.text(18, y - 22, title, bold=True)
            for line, name in enumerate(["bandwidth", "compute"]):
                sheet.note(left - 8, y + 26 * line + 11, name, at="right", colour="ink")
                sheet.box(left, y + 26 * line, room * (0.73 + rows), 22, fill="faint", radius=2)
            for what, share, colour in (
                ("weights", 0.28, "query"),
                ("rows", rows, "key"),
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
        "One layer in time: weights arrive over the bandwidth, then rows, then weights. For one user the "
        "rows take hardly any time, and compute works for a small part of it. For many users the weights "
        "take as long as before and the rows longer. Compute is busy all the time while weights come, and "
        "hardly while rows come.",
    )
