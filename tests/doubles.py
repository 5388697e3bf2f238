"""Stand-ins for the caches that later notebooks bring: each shows that the model needs no change for it.

Rows that are not in use hold POISON: a number so large that no rounding hides it if one is ever looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.model.attention import Attention
from helpers.model.cache import GrowingCache, KVCache, Sizes
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer
from tests.tiny import SIZES, enlarge

POISON = 1e9


class RingCache(KVCache):
    """A few slots a layer: the oldest row leaves when a new one comes, all but the first `sinks`.

    Slots are handed out in no order; where the row in each stands is kept beside it, -1 where none is.

    Args:
        windows: for each layer the tokens that a query sees, itself among them; None for all.
        sinks: rows from the beginning that stay.
    """

    def __init__(self, sizes: Sizes, windows: Sequence[int | None], sinks: int = 0, **rest: Any) -> None:
        self.windows = [window or sizes.max_seq_len for window in windows]
        self.sinks = sinks
        super().__init__(sizes, **rest)

    def allocate(self) -> None:
        self.at = [torch.full((self.sinks + window,), -1) for window in self.windows]
        self.new: dict[int, tuple[Tensor, Tensor]] = {}
        self.k, self.v = (
            [torch.full(self.shapes(len(at))[n], POISON, dtype=self.dtype) for at in self.at] for n in (0, 1)
        )

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.check_rows(layer, k, v)
        self.new[layer] = k, v
        return torch.cat([self.k[layer], k], 2), torch.cat([self.v[layer], v], 2)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        new = self.positions(T)
        return self.seen(torch.cat([self.at[layer], new]), new[:, None], layer)

    def seen(self, keys: Tensor, queries: Tensor, layer: int) -> Tensor:
        near = (keys > queries - self.windows[layer]) | (keys < self.sinks)
        return (keys >= 0) & (keys <= queries) & near

    def advance(self, T: int) -> None:
        positions = self.positions(T)
        for layer, (k, v) in self.new.items():
            for n, position in enumerate(positions.tolist()):
                slot = self.slot(position, layer)
                self.k[layer][:, :, slot], self.v[layer][:, :, slot] = k[:, :, n], v[:, :, n]
                self.at[layer][slot] = position
        super().advance(T)
        self.forget()

    def slot(self, position: int, layer: int) -> int:
        late = position - self.sinks
        return position if late < 0 else self.sinks + late % self.windows[layer]

    def truncate(self, length: int) -> None:
        for layer, at in enumerate(self.at):
            wanted = set(range(max(0, length - self.windows[layer] + 1), length))
            if length and not wanted <= set(at.tolist()):
                raise ValueError(f"rows before token {length} have left; expected a later one, or reset()")
        super().truncate(length)
        self.forget()

    def forget(self) -> None:
        """Poison what the next token cannot see."""
        for layer, at in enumerate(self.at):
            gone = ~self.seen(at, torch.tensor(self.length), layer) | (at >= self.length)
            at[gone] = -1
            self.k[layer][:, :, gone] = self.v[layer][:, :, gone] = POISON

    @property
    def n_kept(self) -> int:
        """Rows of the layer that keeps most."""
        return max(int((at >= 0).sum()) for at in self.at)

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in (*self.k, *self.v))


class MaskedCache(GrowingCache):
    """Keeps every row and shows what seen(key, query, layer) says: the slow form of any window."""

    def __init__(self, sizes: Sizes, seen: Callable[[int, int, int], bool], **rest: Any) -> None:
        self.seen = seen
        super().__init__(sizes, **rest)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        S = self.length + T
        return torch.tensor([[self.seen(k, q, layer) for k in range(S)] for q in range(self.length, S)])


def to_8_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a row's numbers as whole ones from -127 to 127, and a scale for each row and head."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8), scale


class EightBitCache(KVCache):
    """Rows stored in 8 bits each number; what it hands out is plain."""

    def allocate(self) -> None:
        shape = self.shapes(self.max_len)[0]
        self.rows = torch.full((2, self.n_layers, *shape), -128, dtype=torch.int8)
        self.scales = torch.full((2, self.n_layers, *shape[:-1], 1), POISON, dtype=self.dtype)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.check_rows(layer, k, v)
        S = self.length + k.shape[2]
        for n, new in enumerate((k, v)):
            rows, scales = to_8_bits(new)
            self.rows[n, layer, :, :, self.length : S], self.scales[n, layer, :, :, self.length : S] = (
                rows,
                scales,
            )
        keys, values = self.rows[:, layer, :, :, :S] * self.scales[:, layer, :, :, :S]
        return keys, values

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.scales.nbytes


class RoundedCache(GrowingCache):
    """Rows that went through 8 bits, stored as they come out: the slow form of `EightBitCache`."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        (a, b), (c, d) = to_8_bits(k), to_8_bits(v)
        return super().append(layer, a * b, c * d)


class RaggedCache(KVCache):
    """Sequences of unequal length, each with positions, mask and rows of its own.

    Before a pass `expect(counts)` says how many of the T new tokens of each sequence are real; the rest, at
    its end, only fill the tensor up.
    """

    def allocate(self) -> None:
        self.lengths = torch.zeros(self.batch, dtype=torch.int64)
        self.counts: Tensor | None = None
        shapes = self.shapes(self.max_len)
        self.k, self.v = (torch.full((self.n_layers, *shape), POISON, dtype=self.dtype) for shape in shapes)

    def expect(self, counts: Sequence[int]) -> None:
        self.counts = torch.tensor(counts)

    def positions(self, T: int) -> Tensor:
        self.check_room(T)
        return self.lengths[:, None] + torch.arange(T)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.check_rows(layer, k, v)
        for b, positions in enumerate(self.positions(k.shape[2])):
            self.k[layer, b, :, positions], self.v[layer, b, :, positions] = k[b], v[b]
        S = self.length + k.shape[2]
        return self.k[layer, :, :, :S], self.v[layer, :, :, :S]

    def mask(self, T: int, layer: int = 0) -> Tensor:
        return (torch.arange(self.length + T) <= self.positions(T)[..., None])[:, None]

    def advance(self, T: int) -> None:
        super().advance(T)
        counts = torch.full((self.batch,), T) if self.counts is None else self.counts
        self.keep((self.lengths + counts).tolist())
        self.counts = None

    def truncate(self, length: int | Sequence[int]) -> None:
        kept = [length] * self.batch if isinstance(length, int) else list(length)
        if any(not 0 <= new <= old for new, old in zip(kept, self.lengths.tolist(), strict=True)):
            raise ValueError(f"length is {length}; expected at most {self.lengths.tolist()}")
        self.keep(kept)
        self.changes += 1

    def keep(self, lengths: Sequence[int]) -> None:
        self.lengths, self.length = torch.tensor(lengths), max(lengths)
        for b, length in enumerate(lengths):
            self.k[:, b, :, length:] = self.v[:, b, :, length:] = POISON

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


class UnevenConfig(ModelConfig):
    """Values narrower than keys, as where latent rows are stored."""

    @property
    def v_dim(self) -> int:
        return 5


class UnevenAttention(Attention):
    """Attention whose values are narrower than its keys."""

    def __init__(self, config: UnevenConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.v_dim = config.v_dim
        self.v_proj = torch.nn.Linear(config.hidden_size, config.n_kv_heads * config.v_dim, bias=False)
        self.o_proj = torch.nn.Linear(config.n_heads * config.v_dim, config.hidden_size, bias=False)

    def split_heads(self, x: Tensor) -> Tensor:
        width = self.v_dim if x.shape[-1] == self.v_proj.out_features else self.head_dim
        return x.unflatten(-1, (-1, width)).transpose(1, 2)


def uneven_model(**changed: Any) -> Transformer:
    """Return a small model whose values are narrower than its keys."""
    torch.manual_seed(0)
    model = Transformer(UnevenConfig(**(SIZES | changed)))
    for layer, block in enumerate(model.layers):
        block.self_attn = UnevenAttention(model.config, layer)  # type: ignore[arg-type]
    enlarge(model)
    return model.double()
