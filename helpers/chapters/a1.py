"""The predictions and figures of notebook A1, library traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet


def check_late_mask_weight_guess(guess: Any) -> Guess:
    """Compare a guess of an attention weight if the mask is applied after the softmax instead of before it.

    The weight is that of the first of four tokens on itself, the only token that the mask lets it see. All
    scores are equal.
    """
    return Guess(guess, 1 / 4, "Softmax shared 1 among four, and three shares were thrown away.")


def check_keys_seen_guess(guess: Any, keys_seen: list[int]) -> Guess:
    """Compare a guess of which keys a query sees with the keys that it saw in a run, `keys_seen`."""
    return Guess(guess, keys_seen, "It is query 1 of this call, so it sees key 1.")


def check_bfloat16_sum_guess(guess: Any) -> Guess:
    """Compare a guess of the sum 256 + 1 + 1 in bfloat16, added from left to right."""
    left = torch.tensor(256.0).bfloat16() + 1 + 1
    return Guess(guess, left.item(), "257 would need 9 bits, so it is rounded to 256, twice.")


def check_rows_changed_guess(guess: Any, n_changed: int) -> Guess:
    """Compare a guess of how many earlier rows of logits change with the number in a run, `n_changed`."""
    return Guess(guess, n_changed, "Nothing was hidden, so every token saw the last one.")


def top_left_and_bottom_right_masks() -> Picture:
    """Draw the mask that `is_causal=True` applies to queries 5 and 6, and the mask that decode needs."""
    applied, right = np.tri(2, 6, dtype=bool), np.tri(2, 6, 4, dtype=bool)
    masks = {
        ("is_causal=True", "aligned top-left"): applied,
        ("what decode needs", "aligned bottom-right"): right,
    }

    def draw(sheet: Sheet) -> None:
        for n, ((title, aligned), mask) in enumerate(masks.items()):
            left, top, pitch = 84.0, 170.0 * n, 50.0
            sheet.text(left, top + 20, title, bold=True)
            sheet.note(left, top + 41, aligned)
            sheet.note(left - 8, top + 74, "key", at="right")
            for j in range(6):
                sheet.note(left + pitch * (j + 0.5), top + 74, str(j + 1), at="center")
            for i, seen in enumerate(mask):
                y = top + 105 + 30 * i
                sheet.note(left - 8, y, f"query {i + 5}", at="right", colour="ink")
                sheet.note(left + pitch * 6 + 8, y, f"sees {seen.sum()}")
                for j, yes in enumerate(seen):
                    x, bad = left + pitch * j, bool(yes != right[i, j])
                    fill, edge = ("query", "query") if yes else ("panel", "line")
                    sheet.box(x + 2, y - 13, pitch - 4, 26, fill=fill, edge=edge, radius=3)
                    if not yes:
                        sheet.text(
                            x + pitch / 2, y, "×", at="center", colour="ink" if bad else "soft", bold=bad
                        )
                    if bad:
                        sheet.box(x + 2, y - 13, pitch - 4, 26, edge="ink", line=2.4, radius=3)
        below = sheet.bottom + 20
        sheet.box(84, below - 8, 16, 16, edge="ink", line=2.4, radius=3)
        sheet.note(110, below, "wrong: 8 cells", colour="ink")

    return Picture(
        draw,
        "Two masks of 2 lines and 6 columns. With is_causal=True, aligned top-left, query 5 may look at "
        "key 1, and needs keys 1, 2, 3, 4 and 5; query 6 may look at keys 1 and 2, and needs keys 1, 2, 3, "
        "4, 5 and 6. 8 cells differ.",
    )
