"""The figures and the exercise of notebook 19, two machines, and published runs on several cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.drawing.canvas import Picture, Sheet

# Tokens per second for one user in 16 bits, by the number of A100s that share each layer. Each A100 is
# limited to 330 W. Source: https://github.com/meta-pytorch/gpt-fast (README of 2024).
TOKENS_PER_SECOND = {
    "Llama-2-7B": {1: 104.9, 2: 168.84, 4: 254.02, 8: 328.43},
    "Llama-3.1-8B": {1: 93.83, 2: 149.10, 4: 217.21, 8: 276.01},
}


def column_and_row_split(n_in: int, inner_sizes: Mapping[tuple[str, str], int]) -> Picture:
    """Draw how two ranks share pairs of matrices.

    In each pair, the first matrix is split by columns and the second by rows.

    Args:
        n_in: number of input channels of the first matrix in each pair, and of output channels of the second.
        inner_sizes: maps the names of the two matrices in each pair to the number of channels between them.
    """

    def draw(sheet: Sheet) -> None:
        for n, ((first, second), inner) in enumerate(inner_sizes.items()):
            x, y = 20.0, 340.0 * n
            sheet.note(x + 120, y + 20, f"{first}: columns", colour="ink", bold=True)
            sheet.box(x, y + 36, 96, 72, fill="panel", edge="soft")
            sheet.note(x + 48, y + 72, f"{n_in:,} in", at="center", colour="ink")
            sheet.arrow(x + 98, y + 72, x + 118, y + 72, "ink")
            sheet.note(x + 120, y + 186, f"{second}: rows", colour="ink", bold=True)
            sheet.box(x, y + 290, 420, 30, edge="ink", line=1.4)
            sheet.note(
                x + 210, y + 305, f"all-reduce: the sum of both, {n_in:,} out", at="center", colour="ink"
            )
            for rank, colour in enumerate(("query", "value")):
                across, down = x + 120 + 152 * rank, y + 202 + 40 * rank
                for left, top, wide, high, text in (
                    (across, y + 36, 148, 72, f"rank {rank}"),
                    (across, y + 128, 148, 28, f"{inner // 2:,} out"),
                    (x, down, 96, 38, f"{inner // 2:,} in"),
                    (x + 120, down, 160, 38, f"rank {rank}"),
                    (x + 304, down, 116, 38, f"{n_in:,} out"),
                ):
                    sheet.box(left, top, wide, high, fill=f"{colour} fill", edge=colour)
                    sheet.note(left + wide / 2, top + high / 2, text, at="center", colour="ink")
                sheet.arrow(across + 74, y + 110, across + 74, y + 126, "ink")
                for left in (x + 98, x + 282):
                    sheet.arrow(left, down + 19, left + 20, down + 19, "ink")

    sentence = " ".join(
        f"Of {first} each rank has half of the columns: {n_in:,} in, {inner // 2:,} out. Of {second} it has "
        f"half of the rows: {inner // 2:,} in, {n_in:,} out. All-reduce: the sum of both, {n_in:,} out."
        for (first, second), inner in inner_sizes.items()
    )
    return Picture(draw, sentence)


def contexts_and_logsumexp(scores: list[float]) -> tuple[Tensor, Tensor]:
    """Return the contexts of two heads over the same values, and the logsumexp of each head's scores.

    Args:
        scores: the first head's score of each token, for at most four tokens. The second head's scores are
            the halves of these in reverse order.

    Returns:
        The contexts, of shape (2, 2), and the logsumexps, of shape (2,).
    """
    s = torch.tensor([scores, [score / 2 for score in scores[::-1]]], dtype=torch.float64)
    entries = torch.tensor([[10.0, 1], [20, 2], [1, 3], [5, 4]], dtype=torch.float64)[: len(scores)]
    return s.softmax(-1) @ entries, s.logsumexp(-1)


def merge_case(label: str, scores_1: list[float], scores_2: list[float], failure_hint: str = "") -> Case:
    """Return a `Case` that tests `merge` on KV entries that are split into two parts.

    Args:
        label: description of the parts, which completes "merge for …".
        scores_1, scores_2: the first head's scores for each part, as in `contexts_and_logsumexp`.
        failure_hint: as in `Case`.
    """
    return Case(
        (*contexts_and_logsumexp(scores_1), *contexts_and_logsumexp(scores_2)),
        f"merge for {label}",
        failure_hint,
    )


def merge_weighted_by(weights: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    """Return a version of `merge` that returns a weighted sum of the two parts' contexts.

    Args:
        weights: function that takes the logsumexps of the two parts, each of shape (H,), and returns the
            weights of the two parts.
    """
    return lambda o1, a, o2, b: sum(w[:, None] * o for w, o in zip(weights(a, b), (o1, o2), strict=True))


OVERFLOW_HINT = (
    "e to the power of 1,000 is infinite: subtract the larger lse from both first, as softmax does."
)
merge = Exercise(
    name="merge",
    todo="let merge return the contexts over the entries of both, (H, D).",
    cases=[
        merge_case("2 and 2 entries", [1.0, 3.0], [2.0, 0.0]),
        merge_case("3 entries and none", [0.5, 1.0, 2.0], [], "lse -inf is a weight of 0."),
        merge_case("1 entry and 4", [0.5], [1.0, 1.0, 1.0, 1.0]),
        merge_case("negative scores", [-4.0, -2.0, -3.0], [-5.0, -1.0]),
        merge_case("scores around 1,000", [1000.0, 1001.0], [1002.0], OVERFLOW_HINT),
    ],
    right_answer=merge_weighted_by(lambda a, b: torch.stack([a, b]).softmax(0)),
    wrong_answers=[
        "averaged: the part with the larger scores counts for more.",
        merge_weighted_by(lambda a, b: (torch.full_like(a, 0.5), torch.full_like(b, 0.5))),
        "lse is a logarithm: the weights are its exponentials.",
        merge_weighted_by(lambda a, b: (a / (a + b), b / (a + b))),
        "the weights do not sum to 1: divide by the sum of both.",
        merge_weighted_by(lambda a, b: (a.exp(), b.exp())),
        "the weights are the wrong way round.",
        merge_weighted_by(lambda a, b: torch.stack([b, a]).softmax(0)),
    ],
    success="the context over all entries, as if one rank held them all.",
)


def prefill_handover(words: Sequence[str], n_prompt_tokens: int) -> Picture:
    """Draw what the rank that processes a prompt sends to the rank that generates the reply.

    Args:
        words: the words of the reply. The rank that processes the prompt generates the first of them.
        n_prompt_tokens: number of tokens in the prompt.
    """
    cargo = [
        f"the token {words[0]}: 8 bytes",
        f"{n_prompt_tokens} KV entries in each of 4 layers:",
        f"{2048 * n_prompt_tokens:,} bytes",
    ]

    def draw(sheet: Sheet) -> None:
        x, width = 10.0, sheet.width - 20
        ran = f"processed {n_prompt_tokens} tokens", "processed none of these"
        for rank, (y, said) in enumerate(((10.0, words[:1]), (262.0, words[1:]))):
            sheet.box(x, y, width, 160, fill="paper", edge="soft")
            sheet.text(x + 14, y + 20, f"rank {rank}", bold=True)
            sheet.note(x + width - 14, y + 20, ran[rank], at="right")
            for layer in range(4):
                _entries(sheet, x + 14, y + 40 + 15 * layer, width - 28, 12, [True] * n_prompt_tokens)
            sheet.note(x + 14, y + 134, "generates")
            for n, word in enumerate(said):
                sheet.chip(x + 116 + 58 * n, y + 134, word, width=52, fill="generated fill", edge="generated")
        sheet.arrow(34, 182, 34, 252, "ink", width=2)
        for n, line in enumerate(cargo):
            sheet.note(52, 196 + 21 * n, line, colour="ink", bold=n == 2)

    return Picture(
        draw,
        f"Rank 0 processed {n_prompt_tokens} tokens of the prompt, holds their KV entries in 4 layers and "
        f"generates {words[0]}. It hands over that token, 8 bytes, and the entries, {cargo[2]}. Rank 1 "
        f"processed none of these tokens, holds the same entries and generates {' '.join(words[1:])}",
    )


def entries_on_two_ranks(n_tokens: int) -> Picture:
    """Draw what two ranks store if each of them stores the KV entries of every second token.

    Each rank stores a complete copy of everything else.

    Args:
        n_tokens: number of tokens in the text.
    """

    def draw(sheet: Sheet) -> None:
        gap = 96.0
        width = (sheet.width - gap) / 2 - 8
        for rank, x in enumerate((4.0, 4.0 + width + gap)):
            sheet.text(x + width / 2, 14, f"rank {rank}", at="center", bold=True)
            _whole(sheet, x, 32, width, "embedding")
            sheet.note(x, 88, "query heads")
            for head in range(4):
                left = x + width / 4 * head
                sheet.box(left, 102, width / 4 - 4, 28, fill="query fill", edge="query")
                sheet.note(left + width / 8 - 2, 116, str(head), at="center", colour="query")
            sheet.note(x, 158, "KV entries")
            _entries(sheet, x, 172, width, 24, [token % 2 == rank for token in range(n_tokens)])
            sheet.note(x, 210, "of every second token")
            _whole(sheet, x, 300, width, "MLP")
            _whole(sheet, x, 346, width, "LM head")
        middle = 4 + width + gap / 2
        sheet.note(middle, 102, "4 layers", at="center")
        sheet.note(middle, 122, "of this:", at="center")
        sheet.note(middle, 244, "merge", at="center", colour="ink")
        sheet.arrow(12 + width, 260, width + gap - 4, 260, "ink")
        sheet.arrow(width + gap - 4, 270, 12 + width, 270, "ink")

    return Picture(
        draw,
        f"Two ranks hold embedding, 4 query heads, MLP and LM head whole. Of {n_tokens} KV entries rank 0 "
        "holds those of tokens 1, 3, 5 and so on, rank 1 those of tokens 2, 4, 6 and so on. In each of 4 "
        "layers they merge the contexts of both.",
    )


def _whole(sheet: Sheet, x: float, y: float, width: float, name: str) -> None:
    """Draw a labelled box for a part of the model of which each rank stores a complete copy."""
    sheet.box(x, y, width, 30, fill="panel", edge="line")
    sheet.note(x + width / 2, y + 15, name, at="center")


def _entries(sheet: Sheet, x: float, y: float, width: float, high: float, held: Sequence[bool]) -> None:
    """Draw the KV entries of tokens side by side. Those for which `held` is True are filled."""
    pitch = width / len(held)
    for n, own in enumerate(held):
        fill, edge = ("value fill", "value") if own else ("none", "line")
        sheet.box(x + pitch * n, y, max(2.0, pitch - 2), high, fill=fill, edge=edge, radius=1)
