"""A cache that quantizes its older entries to 1, 2, 4 or 8 bits per element."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole

BITS = (8, 4, 2, 1)
SCALE_AXES = {"token": -1, "channel": -2}  # the axis along which elements share a scale


class QuantizedEntries(NamedTuple):
    """A layer's keys or values, quantized in groups.

    Before packing, the levels have shape (B, Hkv, groups, group_size, D).
    """

    packed: Tensor  # levels, as `pack` returns them
    low: Tensor  # minimum of the elements that share a scale
    step: Tensor  # step from one level to the next


def quantize(x: Tensor, bits: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Round the elements of x to 2 ** bits levels, evenly spaced from the minimum to the maximum along `dim`.

    Returns:
        The level of each element, from 0 to 2 ** bits - 1 (torch.uint8, with the shape of x); the minimum
        along `dim`; and the step from one level to the next. The minimum and the step have the dtype of x and
        length 1 along `dim`.
    """
    low, high = x.aminmax(dim=dim, keepdim=True)
    step = (high - low) / (2**bits - 1)
    levels = (x - low) / step.where(step > 0, 1)  # if all numbers are equal, the step is 0: use level 0
    return levels.round().clamp(max=2**bits - 1).to(torch.uint8), low, step  # the step was rounded, too


def dequantize(levels: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """Return the values that the levels represent, each within half a step of the original value.

    Args:
        levels, low, step: as `quantize` returns them.
    """
    return low + levels * step


def pack(levels: Tensor, bits: int) -> Tensor:
    """Pack levels into bytes: each byte has the levels of 8 / bits consecutive entries in one channel.

    The levels have shape (…, n, D), the result (…, n · bits / 8, D).
    """
    shared = levels.unflatten(-2, (-1, 8 // bits))  # (…, n · bits / 8, 8 / bits, D)
    return (shared << bit_shifts(bits, levels.device)).sum(dim=-2, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """Unpack bytes of shape (…, n · bits / 8, D) into levels of shape (…, n, D)."""
    shared = packed.unsqueeze(-2) >> bit_shifts(bits, packed.device)
    return (shared & (2**bits - 1)).flatten(-3, -2)


def bit_shifts(bits: int, device: torch.device) -> Tensor:
    """Return the shift, in bits, of each level in a byte, of shape (8 / bits, 1)."""
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device)[:, None]


class QuantizedCache(GrowingCache):
    """A cache that keeps the newest entries in full precision and quantizes the older entries.

    Entries are quantized in groups of `group_size`, in `advance`, as soon as `residual_length + group_size`
    entries are in full precision. A pass therefore sees its own entries in full precision, and the result
    depends on how a sequence is split into passes. `append` returns ordinary keys and values: older entries
    are dequantized in every pass.

    One head's key or value has D channels of s bytes each. Once quantized, it takes D · bits / 8 bytes, plus
    its share of the scales. A scale consists of a minimum and a step, and takes 2 · s bytes. Per token, each
    key or value has its own scale. Per channel, each channel of a group has its own scale, which adds 2 · D ·
    s / group_size bytes per key or value.

    A dequantized element differs from the original by at most half a step. The step is (maximum - minimum) /
    (2 ** bits - 1), over the elements that share a scale. In a narrow dtype, the rounding of the scales adds
    to this error.

    Args:
        config: config of the model.
        bits: bits per element, 8, 4, 2 or 1; or a pair, for keys and for values.
        per: which elements share a scale: those of one token, "token", or of one channel, "channel"; or a
            pair, for keys and for values.
        group_size: number of entries that are quantized together; must be a multiple of 8.
        residual_length: minimum number of entries in full precision; 1 or more, so that a pass of one token
            can be undone.
        other: batch, max_len, dtype and device, as in `Cache`.

    Source: KIVI, Liu et al. 2024, arXiv:2402.02750 (keys per channel, values per token, and the newest
    entries in full precision).
    """

    can_truncate = False
    snapshot_fields = ("k", "v", "quantized", "n_quantized")

    def __init__(
        self,
        config: ModelConfig,
        bits: int | tuple[int, int] = 8,
        per: str | tuple[str, str] = "token",
        group_size: int = 32,
        residual_length: int = 1,
        **other: Any,
    ) -> None:
        self.bits = key_and_value_settings("bits", bits, BITS)
        widths = config.k_dim, config.v_dim
        # An entry of width 0 (latent attention stores no values) has no largest number along its own axis.
        scales = key_and_value_settings("per", per, tuple(SCALE_AXES))
        self.scale_axes = [
            SCALE_AXES[scale] if width else -2 for scale, width in zip(scales, widths, strict=True)
        ]
        self.group_size = check_whole("group_size", group_size, minimum=8)
        self.residual_length = check_whole("residual_length", residual_length)
        if self.group_size % 8:
            raise ValueError(f"group_size is {group_size}; expected a multiple of 8: entries share bytes")
        super().__init__(config, **other)

    def allocate(self) -> None:
        super().allocate()
        self.n_quantized = 0  # number of quantized entries per sequence
        self.quantized = self.empty_quantized()

    def empty_quantized(self) -> list[list[QuantizedEntries | None]]:
        """Return two lists, for keys and for values, that contain None for each layer."""
        return [[None] * self.n_layers, [None] * self.n_layers]

    def n_stored(self, layer: int) -> int:
        """Return the number of entries in full precision, the same in every layer."""
        return self.length - self.n_quantized

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new entries in full precision. Return all entries, the older ones dequantized.

        The entries are in order of position. See `Cache.append`.
        """
        super().append(layer, k, v)
        return self.dequantized(0, layer), self.dequantized(1, layer)  # (B, Hkv, S, D)

    def dequantized(self, kv_index: int, layer: int) -> Tensor:
        """Return all keys (`kv_index` 0) or values (`kv_index` 1) of a layer in full precision.

        The result has shape (B, Hkv, S, D).
        """
        newest, quantized = (self.k, self.v)[kv_index][layer], self.quantized[kv_index][layer]
        if not quantized:
            return newest
        packed, low, step = quantized
        old = dequantize(unpack(packed, self.bits[kv_index]), low, step)  # (B, Hkv, groups, group, D)
        return torch.cat([old.flatten(2, 3), newest], dim=2)

    def advance(self, T: int) -> None:
        """Count the T new tokens as seen. Quantize the oldest full-precision entries, in whole groups.

        The newest `residual_length` entries always stay in full precision.
        """
        self.check_capacity(T)
        n = max(0, self.n_stored(0) + T - self.residual_length) // self.group_size * self.group_size
        fields: dict[str, Any] = {}
        if n:
            quantized = [[self.extend_quantized(i, x, n) for x in range(self.n_layers)] for i in (0, 1)]
            # These are copies, so that the memory of the quantized entries is freed.
            k, v = ([x[:, :, n:].clone() for x in entries] for entries in (self.k, self.v))
            fields = {"k": k, "v": v, "quantized": quantized, "n_quantized": self.n_quantized + n}
        self.commit(self.length + T, **fields)

    def extend_quantized(self, kv_index: int, layer: int, n_oldest: int) -> QuantizedEntries:
        """Quantize a layer's oldest full-precision keys or values.

        Return them after those quantized earlier.

        Args:
            kv_index: 0 for keys, 1 for values.
            layer: index of the layer, from 0.
            n_oldest: number of entries to quantize, a multiple of `group_size`.
        """
        groups = (self.k, self.v)[kv_index][layer][:, :, :n_oldest].unflatten(2, (-1, self.group_size))
        bits = self.bits[kv_index]
        levels, low, step = quantize(
            groups, bits, self.scale_axes[kv_index]
        )  # (B, Hkv, groups, group_size, D)
        new, old = QuantizedEntries(pack(levels, bits), low, step), self.quantized[kv_index][layer]
        if not old:
            return new
        return QuantizedEntries(*(torch.cat(parts, dim=2) for parts in zip(old, new, strict=True)))

    @property
    def unreachable_lengths(self) -> range:
        """The lengths that `truncate` cannot go back to.

        `truncate` can only keep or remove all quantized entries.
        """
        return range(1, self.n_quantized)

    def truncate(self, length: int) -> None:
        self.check_length(length)
        n, quantized = (self.n_quantized, self.quantized) if length else (0, self.empty_quantized())
        self.set_lengths([int(length)], n_quantized=n, quantized=quantized)

    @property
    def nbytes(self) -> int:
        """The memory of the quantized entries, the scales, and the entries in full precision, in bytes."""
        parts = [part for entries in self.quantized for layer in entries for part in layer or ()]
        return super().nbytes + sum(part.nbytes for part in parts)


def key_and_value_settings(name: str, value: Any, allowed: tuple[Any, ...]) -> list[Any]:
    """Return a list of two settings, for keys and for values; a single value is used for both.

    Raises:
        ValueError: a setting is not among the allowed values. The message calls it `name`.
    """
    settings = list(value) if isinstance(value, tuple | list) else [value, value]
    if len(settings) != 2 or not all(type(x) is type(allowed[0]) and x in allowed for x in settings):
        expected = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} is {value!r}; expected one of {expected}, or a pair of them for K and V")
    return settings
