"""Stand-ins for the caches that later notebooks bring: each shows that the model needs no change for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from helpers.model.attention import Attention
from helpers.model.cache import GrowingCache, KVCache
from helpers.model.cache.base import Sizes
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer
from tests.tiny import SIZES, enlarge

POISON = 1e9  # in rows that are not in use: so large that no rounding hides it if one is ever looked at


class WindowCache(KVCache):
    """Lets go of every row that no later token may see. Rows lie in no order; beside each is where it stands.

    Args:
        windows: for each layer the tokens that a query sees, itself among them; None for all.
        sinks: rows from the beginning that stay.
    """

    def __init__(self, sizes: Sizes, windows: Sequence[int | None], sinks: int = 0, **rest: Any) -> None:
        self.windows, self.sinks = [window or sizes.max_seq_len for window in windows], sinks
        super().__init__(sizes, **rest)

    def allocate(self) -> None:
        self.at = [torch.empty(0, dtype=torch.int64)] * self.n_layers
        self.rows = [[torch.empty(shape, dtype=self.dtype) for shape in self.shapes(0)]] * self.n_layers
        self.new = self.rows.copy()

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.check_rows(layer, k, v)
        keys, values = (torch.cat(pair, 2) for pair in zip(self.rows[layer], (k, v), strict=True))
        self.new[layer] = [keys, values]
        return keys, values

    def mask(self, T: int, layer: int = 0) -> Tensor:
        new = self.positions(T)
        return self.seen(torch.cat([self.at[layer], new]), new[:, None], layer)

    def seen(self, keys: Tensor, queries: Tensor | int, layer: int) -> Tensor:
        near = (keys > queries - self.windows[layer]) | (keys < self.sinks)
        return (keys <= queries) & near

    def advance(self, T: int) -> None:
        new = self.positions(T)
        super().advance(T)
        for layer, rows in enumerate(self.new):
            at = torch.cat([self.at[layer], new])
            self.keep(layer, at, rows, self.seen(at, self.length, layer))

    def keep(self, layer: int, at: Tensor, rows: list[Tensor], kept: Tensor) -> None:
        self.at[layer], self.rows[layer] = at[kept].flip(0), [x[:, :, kept].flip(2) for x in rows]

    def truncate(self, length: int) -> None:
        tokens = torch.arange(length)
        for layer, at in enumerate(self.at):
            if not torch.isin(tokens[self.seen(tokens, length, layer)], at).all():
                raise ValueError(f"rows before token {length} have left; expected a later one, or reset()")
        super().truncate(length)
        for layer, at in enumerate(self.at):
            self.keep(layer, at, self.rows[layer], at < length)

    @property
    def n_kept(self) -> int:
        return max(map(len, self.at))

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for rows in self.rows for x in rows)


class MaskedCache(GrowingCache):
    """Keeps every row and shows what seen(key, query, layer) says: the slow form of any window."""

    def __init__(self, sizes: Sizes, seen: Callable[[int, int, int], bool], **rest: Any) -> None:
        self.seen = seen
        super().__init__(sizes, **rest)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        S = self.length + T
        return torch.tensor([[self.seen(k, q, layer) for k in range(S)] for q in range(self.length, S)])


class UnevenConfig(ModelConfig):
    """Values narrower than keys, as where latent rows are stored."""

    v_dim = 5


class UnevenAttention(Attention):
    """Attention whose values are narrower than its keys."""

    def __init__(self, config: UnevenConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.v_dim = config.v_dim
        self.v_proj = nn.Linear(config.hidden_size, config.n_kv_heads * config.v_dim, bias=False)
        self.o_proj = nn.Linear(config.n_heads * config.v_dim, config.hidden_size, bias=False)

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
