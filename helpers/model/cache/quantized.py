"""A cache that rounds old rows to a few bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole

BITS = (8, 4, 2, 1)
BY = {"token": -1, "channel": -2}  # the axis along which numbers share a scale


def quantize(x: Tensor, bits: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Round numbers to 2 ** bits levels, evenly spaced from the smallest to the largest along `dim`.

    Returns:
        The level of each number, from 0 to 2 ** bits - 1 (torch.uint8, the shape of x), the smallest number,
        and the step from one level to the next (both of x's dtype, 1 long along dim).
    """
    low, high = x.aminmax(dim=dim, keepdim=True)
    step = (high - low) / (2**bits - 1)
    levels = (x - low) / step.where(step > 0, 1)  # where all numbers are equal there is no step: level 0
    return levels.round().clamp(max=2**bits - 1).to(torch.uint8), low, step  # the step was rounded, too


def dequantize(levels: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """Return the numbers that levels stand for: each within half a step of what it was."""
    return low + levels * step


def pack(levels: Tensor, bits: int) -> Tensor:
    """Put 8 / bits rows into the bytes of one: levels (…, n, D) → (…, n · bits / 8, D)."""
    shared = levels.unflatten(-2, (-1, 8 // bits))  # (…, n · bits / 8, 8 / bits, D)
    return (shared << shifts(bits, levels)).sum(dim=-2, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """Take the rows apart again: (…, n · bits / 8, D) → levels (…, n, D)."""
    shared = packed.unsqueeze(-2) >> shifts(bits, packed)
    return (shared & (2**bits - 1)).flatten(-3, -2)


def shifts(bits: int, like: Tensor) -> Tensor:
    """Return by how many bits each of the rows that share bytes is shifted, (8 / bits, 1)."""
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=like.device)[:, None]


class QuantizedCache(GrowingCache):
    """Keeps the newest rows in full and rounds the others, `group` at a time, packed to the byte.

    Rows are rounded in `advance`, once there are `full + group` in full. So a pass sees its own rows in full,
    and the result depends on how a text is cut into passes. `append` hands out plain keys and values, worked
    out anew in every pass.

    A row of a head, of D numbers of s bytes, then takes D · bits / 8 bytes. By token, each of its rows has a
    smallest number and a step, 2 · s bytes; by channel, each column of a group has: 2 · D · s / group bytes a
    row. A number comes back within half a step, (largest - smallest) / (2 ** bits - 1) / 2 of its row or its
    column; in a narrow dtype the rounding of the scales comes on top.

    Args:
        sizes: of the model.
        bits: of a number: 8, 4, 2 or 1; a pair for keys and values.
        by: "token" or "channel", which share a scale; a pair for keys and values.
        group: rows that are rounded together, a multiple of 8.
        full: rows that stay in full, at the least; 1 or more, so that a pass of one token can be taken back.
        rest: batch, max_len, dtype and device, as in `Cache`.

    Source: KIVI, Liu et al. 2024, arXiv:2402.02750 (keys by channel, values by token, the newest in full).
    """

    can_truncate = False
    held = ("k", "v", "rounded", "n_rounded")

    def __init__(
        self,
        sizes: ModelConfig,
        bits: int | tuple[int, int] = 8,
        by: str | tuple[str, str] = "token",
        group: int = 32,
        full: int = 1,
        **rest: Any,
    ) -> None:
        self.bits = pair("bits", bits, BITS)
        widths = sizes.k_dim, sizes.v_dim
        # Rows without numbers (latent rows have no values) have no largest one; of columns there are 0.
        self.dims = [
            BY[b] if width else -2 for b, width in zip(pair("by", by, tuple(BY)), widths, strict=True)
        ]
        self.group, self.full = check_whole("group", group, least=8), check_whole("full", full)
        if self.group % 8:
            raise ValueError(f"group is {group}; expected a multiple of 8: rows share bytes")
        super().__init__(sizes, **rest)

    def allocate(self) -> None:
        super().allocate()
        self.n_rounded = 0  # rows
        self.rounded = self.none_rounded()

    def none_rounded(self) -> list[list[tuple[Tensor, ...]]]:
        """For keys and for values, by layer: packed levels, smallest numbers, steps; nothing at first."""
        return [[()] * self.n_layers, [()] * self.n_layers]

    def rows_of(self, layer: int) -> int:
        """Rows in full."""
        return self.length - self.n_rounded

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new rows in full; hand out the rounded ones before them. See `Cache.append`."""
        super().append(layer, k, v)
        return self.read(0, layer), self.read(1, layer)  # (B, Hkv, S, D)

    def read(self, which: int, layer: int) -> Tensor:
        """Return all rows of a layer as plain numbers: keys (0) or values (1)."""
        newest, rounded = (self.k, self.v)[which][layer], self.rounded[which][layer]
        if not rounded:
            return newest
        packed, low, step = rounded
        old = dequantize(unpack(packed, self.bits[which]), low, step)  # (B, Hkv, groups, group, D)
        return torch.cat([old.flatten(2, 3), newest], dim=2)

    def advance(self, T: int) -> None:
        """Count T tokens as stored, and round the oldest rows in full, in whole groups."""
        self.check_room(T)
        n = max(0, self.rows_of(0) + T - self.full) // self.group * self.group
        changed: dict[str, Any] = {}
        if n:
            rounded = [[self.round(which, x, n) for x in range(self.n_layers)] for which in (0, 1)]
            # Copies, so that the memory of the others is freed.
            k, v = ([x[:, :, n:].clone() for x in rows] for rows in (self.k, self.v))
            changed = {"k": k, "v": v, "rounded": rounded, "n_rounded": self.n_rounded + n}
        self.update(self.length + T, **changed)

    def round(self, which: int, layer: int, n: int) -> tuple[Tensor, ...]:
        """Return levels, smallest numbers and steps of a layer's rounded rows and the next n of them."""
        groups = (self.k, self.v)[which][layer][:, :, :n].unflatten(2, (-1, self.group))
        levels, low, step = quantize(
            groups, self.bits[which], self.dims[which]
        )  # (B, Hkv, n / group, group, D)
        new, old = (pack(levels, self.bits[which]), low, step), self.rounded[which][layer]
        return tuple(torch.cat(parts, dim=2) for parts in zip(old, new, strict=True)) if old else new

    @property
    def lost_lengths(self) -> range:
        """A part of the rows that are rounded: it keeps all of them, or none."""
        return range(1, self.n_rounded)

    def truncate(self, length: int) -> None:
        self.check_length(length)
        n, rounded = (self.n_rounded, self.rounded) if length else (0, self.none_rounded())
        self.cut([int(length)], n_rounded=n, rounded=rounded)

    @property
    def nbytes(self) -> int:
        """Bytes of the rounded rows with their scales, and of those in full."""
        parts = [part for rows in self.rounded for layer in rows for part in layer]
        return super().nbytes + sum(part.nbytes for part in parts)


def pair(name: str, value: Any, allowed: tuple[Any, ...]) -> list[Any]:
    """Return a setting of keys and of values. ValueError unless both are allowed."""
    both = list(value) if isinstance(value, tuple | list) else [value, value]
    if len(both) != 2 or not all(type(one) is type(allowed[0]) and one in allowed for one in both):
        expected = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} is {value!r}; expected one of {expected}, or a pair of them for K and V")
    return both
