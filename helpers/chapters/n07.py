"""The exercise, the prediction and the figures of notebook 07, a complete transformer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import printable, shorten
from helpers.model.attention import attend
from helpers.model.config import ModelConfig

Operation = Callable[[Tensor], Tensor]
C = 32  # channels per token in `who_moves`


def angles_of(config: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines for these positions, (T, D) each; notebook 07 has the code in a fold."""
    D = config.head_dim
    frequencies = config.rope_theta ** (-torch.arange(0, D, 2) / D)  # radians a position, for each pair
    angles = (positions[:, None] * frequencies).repeat(1, 2)  # (T, D): one copy for each half
    return angles.cos(), angles.sin()


def seeded_odd_multiples(seed: int, *shape: int) -> Tensor:
    """Return a tensor of random odd multiples of 1/128, always the same for the same seed and shape.

    No element is 0. Sums and means of the elements are exact, so the order of additions does not matter.
    """
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return ((64 * numbers).floor() + 0.5) / 64


def causal_attention(x: Tensor) -> Tensor:
    """Apply causal attention to x, of shape (1, T, C). Queries, keys and values are the tokens themselves."""
    x, mask = x[:, None], torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return attend(x, x, x, mask, C**-0.5)[:, 0]


def shift_half_to_next_token(x: Tensor) -> Tensor:
    """Shift the first half of each token's channels to the next token; x has shape (1, T, C)."""
    return torch.cat([F.pad(x[:, :-1, : C // 2], (0, 0, 1, 0)), x[:, :, C // 2 :]], dim=2)


def operations_with_inputs() -> dict[str, tuple[Operation, Tensor]]:
    """Return the operations of the exercise by name, each with an input of shape (1, T, C)."""
    weight, (x3, x4, x5, x6) = (
        seeded_odd_multiples(9, C, C),
        [seeded_odd_multiples(50 + T, 1, T, C) for T in (3, 4, 5, 6)],
    )
    return {
        "causal attention": (causal_attention, x5),
        "a linear layer": (lambda x: x @ weight, x3),
        "RMSNorm": (lambda x: x * x.square().mean(dim=2, keepdim=True).rsqrt(), x4),
        "each token less its own mean": (lambda x: x - x.mean(dim=2, keepdim=True), x6),
        "a norm over the wrong axis": (lambda x: x * x.square().mean(dim=1, keepdim=True).rsqrt(), x5),
        "half of each token handed to the next": (shift_half_to_next_token, x4),
    }


def run_with_fixed_seed(who_moves: Any, operation: Operation, x: Tensor) -> Any:
    """Call a version of `who_moves` with a fixed seed. Afterwards, restore PyTorch's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return who_moves(operation, x)


def make_who_moves(
    change_token: Callable[[Tensor], Tensor] = lambda token: torch.randn(len(token)),
    outputs_differ: Callable[[Tensor, Tensor], Tensor] = lambda now, before: (now != before).any(dim=-1),
    copy_each_time: bool = True,
) -> Callable[[Operation, Tensor], np.ndarray]:
    """Return a version of `who_moves`, which finds out which token's input changes which token's output.

    With the default arguments, it is the right answer.

    Args:
        change_token: function that takes the channels of a token, of shape (C,), and returns changed ones.
        outputs_differ: function that takes the outputs after and before a change, of shape (1, T, C), and
            returns bools of shape (1, T), True for each token whose output differs.
        copy_each_time: whether each change is made to a new copy of x, so that changes do not accumulate.
    """

    def who(f: Operation, x: Tensor) -> np.ndarray:
        before, changed, columns = f(x), x.clone(), []
        for j in range(x.shape[1]):
            changed = x.clone() if copy_each_time else changed
            changed[0, j] = change_token(changed[0, j])
            columns.append(outputs_differ(f(changed), before)[0])
        return torch.stack(columns, dim=1).numpy()

    return who


def describe_first_wrong_cell(got: np.ndarray, expected: np.ndarray) -> str:
    """Describe the first wrong cell of a result. Cells are searched column by column."""
    j, i = np.argwhere((got != expected).T)[0]
    fact = f"changing token {j} {'changes' if expected[i, j] else 'does not change'} f(x) at {i}"
    return f"gives {got[i, j]} at [{i}, {j}]; expected {expected[i, j]}, as {fact}"


who_moves = Exercise(
    name="who_moves",
    todo="let who_moves change one token at a time, and return bools (T, T).",
    cases=[
        Case((f, x), f"who_moves on {name}, T = {x.shape[1]},")
        for name, (f, x) in operations_with_inputs().items()
    ],
    run_case=run_with_fixed_seed,
    right_answer=make_who_moves(),
    wrong_answers=[
        "transposed: line i is what changed, column j what moved it.",
        lambda f, x: make_who_moves()(f, x).T,
        "upside down: True where the token changes.",
        lambda f, x: ~make_who_moves()(f, x),
        make_who_moves(outputs_differ=lambda now, before: (now == before).any(dim=-1)),
        "the changes pile up: for each j begin with a fresh copy of x.",
        make_who_moves(copy_each_time=False),
        "the change is hidden: an operation may ignore what is added to every number, or a factor. "
        "Change a token at random, and compare number by number.",
        make_who_moves(lambda token: token + 1),
        make_who_moves(lambda token: 2 * token),
    ],
    success="3 of 6 operations are a diagonal, attention is the lower triangle, and the norm over the wrong "
    "axis mixes every token with every other.",
    describe_difference=describe_first_wrong_cell,
)


def check_core_parameters_guess(guess: Any, model: Any) -> Guess:
    """Compare a guess with the number of learned parameters that `self.core` has in all layers together."""
    learned = sum(p.numel() for layer in model.layers for p in layer.self_attn.core.parameters())
    return Guess(guess, learned, "that line has no matrix: those of attention come before it and after it.")


def token_dependencies(dependencies: Mapping[str, np.ndarray]) -> Picture:
    """Draw, for each operation, which token's input changes which token's output.

    Args:
        dependencies: maps the name of each operation to bools of shape (T, T), True at [i, j] if a change to
            the input of token j changes the output of token i.
    """
    T, cell = len(next(iter(dependencies.values()))), 20.0

    def draw(sheet: Sheet) -> None:
        a_line, left = 3, 40.0
        pitch, deep = (sheet.width - left) / a_line, cell * T + 70
        sheet.note(18, 18, "Filled: changing the column's token changes the")
        sheet.note(18, 38, "output at the row's token.")
        y = 62.0
        for x, name, colour in ((24.0, "the token itself", "soft"), (164.0, "another token", "query")):
            sheet.square(x, y, 12, colour)
            sheet.note(x + 12, y, name)
        for n, (name, moved) in enumerate(dependencies.items()):
            x, top = left + pitch * (n % a_line), y + 70 + deep * (n // a_line)
            middle, base = x + cell * T / 2, top + cell * T
            others = bool((moved & ~np.eye(T, dtype=bool)).any())
            style: dict[str, Any] = {"at": "center", "colour": "query" if others else "ink"}
            above, beside = n < a_line, n % a_line == 0  # grids with token numbers above or to the left
            shown = shorten(name, min(pitch - 6, 2 * (middle - 14)), bold=others)
            sheet.text(middle, top - (36 if above else 16), shown, bold=others, **style)
            for i, j in np.ndindex(T, T):
                fill = "panel" if not moved[i, j] else "soft" if i == j else "query"
                edge, place = ("line" if not moved[i, j] else fill), (x + cell * j + 1, top + cell * i + 1)
                sheet.box(*place, cell - 2, cell - 2, fill=fill, edge=edge, radius=2)
            for j in range(T if above else 0):
                sheet.note(x + cell * (j + 0.5), top - 12, str(j + 1), at="center")
            for i in range(T if beside else 0):
                sheet.note(x - 8, top + cell * (i + 0.5), str(i + 1), at="right")
            sentence = "other tokens too" if others else "itself only" if moved.any() else "nothing"
            sheet.note(max(middle, x + 26), base + 16, sentence, **style)

    grids = "; ".join(
        f"{printable(name)} {moved.sum()}, "
        + ("other tokens too" if (moved & ~np.eye(T, dtype=bool)).any() else "itself only")
        for name, moved in dependencies.items()
    )
    title = f"Grids of {T} by {T} tokens, filled where changing the column's token changes the row's output"
    return Picture(draw, f"{title}. Squares filled: {grids}.")


def residual_stream() -> Picture:
    """Draw a token's residual stream through a block, what reads and adds to it, and an earlier token's."""
    notes = {
        **{58: "one list of 128 numbers", 158: "attention reads the list", 204: "and adds to it"},
        **{290: "the MLP reads the list", 336: "and adds to it", 372: "then 3 more blocks"},
        432: "a number for each word",
    }

    def draw(sheet: Sheet) -> None:
        earlier, branch, stream = 48.0, 154.0, 226.0
        sheet.box(12, 76, stream, 282, fill="paper", edge="soft")
        sheet.chip(earlier, 18, "weather", width=72, fill="panel", edge="line")
        sheet.arrow(earlier, 31, earlier, 46, "soft")
        sheet.line((earlier, 50), (earlier, 400), colour="line", width=5)
        asked = earlier + 22, 206.0
        for end in (
            (earlier, 206),
            (branch - 30, 126),
            (branch - 42, 166),
            (branch - 30, 248),
            (branch - 30, 286),
        ):
            sheet.line(asked, end, colour="query", dashes=(0, (3, 3)))
        sheet.disc(*asked, 11, "paper", "query")
        sheet.text(*asked, "?", at="center", colour="query", bold=True)
        sheet.chip(stream, 18, "so", width=62, fill="panel", edge="line")
        sheet.arrow(stream, 31, stream, 46, "soft")
        sheet.line((stream, 50), (stream, 400), colour="soft", width=5)
        for y, to in ((96.0, 204.0), (228.0, 336.0)):
            sheet.disc(stream, y, 4, "ink")
            sheet.line((stream, y), (branch, y), (branch, to), (stream - 18, to))
            sheet.arrow(stream - 20, to, stream - 10, to, "ink", width=1.2)
            sheet.disc(stream, to, 9, "paper", "ink")
            for dx, dy in ((5, 0), (0, 5)):
                sheet.line((stream - dx, to - dy), (stream + dx, to + dy), width=1.6)
        parts = [(branch, 120, 52, "norm"), (branch, 160, 78, "attention"), (branch, 252, 52, "norm")]
        parts += [(branch, 292, 50, "MLP"), (stream, 402, 66, "norm"), (stream, 434, 66, "LM head")]
        for x, y, width, name in parts:
            sheet.box(x - width / 2, y - 14, width, 28, fill="panel", edge="soft")
            sheet.note(x, y, name, at="center", colour="ink")
        sheet.arrow(stream, 448, stream, 468, "generated")
        sheet.chip(stream, 482, "nice", width=62, fill="generated fill", edge="generated")
        for y, line in notes.items():
            sheet.note(stream + 40, y, line, colour="ink")

    return Picture(
        draw,
        "The residual stream of so, a list of 128 numbers, from top to bottom through a block. Twice "
        "something reads it and adds to it: norm and attention, then norm and MLP. Three more blocks "
        "follow, then norm and LM head, a number for each word; here the largest names nice. "
        "Next to it the stream of weather, and a question mark with a line from it to each of the four.",
    )
