"""The KV cache, twice behind one interface: one that grows by copying, one that is laid out beforehand.

The cache is an argument of the model. It alone knows where new tokens stand and what they may see.
"""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.arguments import check_whole, is_whole
from helpers.model.config import ModelConfig


class KVCache:
    """What both caches share: positions, mask, counting, forgetting, refusing.

    Args:
        config: of the model it serves.
        batch: sequences, all of the same length.
        max_len: rows it takes at most; None takes the config's max_seq_len.
        dtype: of keys and values: the model's.
        device: where they lie: the model's.

    Raises:
        ValueError: batch or max_len is no whole number over 0, or max_len is over the config's max_seq_len.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int = 1,
        max_len: int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config = config
        self.batch = batch
        self.max_len = config.max_seq_len if max_len is None else max_len
        self.dtype = dtype
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0", as tensors say it
        self.length = 0
        check_whole("batch", batch)
        check_whole("max_len", self.max_len)
        if self.max_len > config.max_seq_len:
            raise ValueError(
                f"max_len is {max_len}; expected at most {config.max_seq_len}, the model's max_seq_len"
            )
        self.allocate()

    def allocate(self) -> None:
        """Make room for keys and values."""
        raise NotImplementedError

    def positions(self, T: int) -> Tensor:
        """Return where T new tokens stand, from 0, (T,). ValueError if they do not fit."""
        self.check_room(T)
        return torch.arange(self.length, self.length + T, device=self.device)

    def mask(self, T: int) -> Tensor:
        """Return (T, S): True where a new token (row) may look at a stored or new one (column)."""
        keys = torch.arange(self.length + T, device=self.device)
        return keys <= self.positions(T)[:, None]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values of one layer; return those of every position so far.

        Args:
            layer: layer index, from 0.
            k: new keys, already rotated, (B, Hkv, T, D).
            v: new values, (B, Hkv, T, D).

        Returns:
            Keys and values, (B, Hkv, S, D) with S = length + T; views in the preallocated cache.

        Raises:
            ValueError: S is over max_len, or the rows have another shape or dtype; nothing has been written.
            IndexError: there is no such layer.

        Source: grouped KV heads, Ainslie et al. 2023, arXiv:2305.13245.
        """
        raise NotImplementedError

    def advance(self, T: int) -> None:
        """Count T tokens as stored; the model calls it once a pass, after the last layer."""
        self.check_room(T)
        self.length += T

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, to go on from there. ValueError if there are fewer."""
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the tokens stored")
        self.length = length

    def reset(self) -> None:
        """Forget every token: one cache serves one generation."""
        self.truncate(0)

    @property
    def n_layers(self) -> int:
        """Layers it has room for."""
        return self.config.n_layers

    @property
    def n_kept(self) -> int:
        """Rows stored, in every layer."""
        return self.length

    @property
    def nbytes(self) -> int:
        """Bytes that its keys and values take."""
        raise NotImplementedError

    def __repr__(self) -> str:
        shape = f"{self.n_layers} layers of ({self.batch}, {self.config.n_kv_heads}, {self.config.head_dim})"
        rows = f"{self.length} of {self.max_len} rows"
        return f"{type(self).__name__}({rows}, {shape}, {str(self.dtype)[6:]}, {self.nbytes:,} bytes)"

    def check_room(self, T: int) -> None:
        """Raise ValueError if T new tokens do not fit."""
        if T < 0:
            raise ValueError(f"{T} new tokens; expected 0 or more: truncate(length) takes tokens away")
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new tokens after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a cache with a larger max_len, or stop here. Nothing was written."
            )

    def check_layer(self, layer: int) -> None:
        """Raise IndexError for a layer below 0, which Python would take for one of the last."""
        if layer < 0:
            raise IndexError(f"layer is {layer}; expected 0 to {self.n_layers - 1}")

    def check_rows(self, k: Tensor, v: Tensor) -> None:
        """Raise ValueError if new rows are not (B, Hkv, T, D) of this cache and its dtype, or do not fit."""
        T = k.shape[-2]
        expected = (self.batch, self.config.n_kv_heads, T, self.config.head_dim)
        if k.shape != expected or v.shape != expected:
            raise ValueError(
                f"keys {tuple(k.shape)} and values {tuple(v.shape)} came in; expected {expected} for both"
            )
        if k.dtype is not self.dtype or v.dtype is not self.dtype:
            raise ValueError(f"keys {k.dtype} and values {v.dtype} came in; expected {self.dtype} for both")
        self.check_room(T)

    def check_fits(self, config: ModelConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raise ValueError, and name what differs, unless this cache was made for such a pass."""
        if self.config != config:
            names = [name for name in vars(config) if getattr(config, name) != getattr(self.config, name)]
            name = names[0]
            raise ValueError(
                f"this cache was made for a model with {name} {getattr(self.config, name)}, this model has "
                f"{getattr(config, name)}; expected the same config: make a cache with model.config"
            )
        pairs = {"batch": (self.batch, batch), "dtype": (self.dtype, dtype), "device": (self.device, device)}
        for name, (mine, theirs) in pairs.items():
            if mine != theirs:
                raise ValueError(
                    f"this cache was made for {name} {mine}, the pass has {theirs}; expected the same: "
                    f"make a cache with {name}={theirs}"
                )


class GrowingCache(KVCache):
    """Every append copies all rows into new, longer tensors: easy to see through, S rows moved a step."""

    def allocate(self) -> None:
        """Start without rows."""
        shape = (self.batch, self.config.n_kv_heads, 0, self.config.head_dim)
        self.k, self.v = (
            [torch.empty(shape, dtype=self.dtype, device=self.device)] * self.n_layers for _ in "kv"
        )

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new rows behind a copy of the old ones; see `KVCache.append`."""
        self.check_layer(layer)
        self.check_rows(k, v)
        # Only the first `length` rows count: more are what a pass that failed left behind.
        self.k[layer] = torch.cat([self.k[layer][:, :, : self.length], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, : self.length], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows stored; those of rows that were cut off are freed by the next append."""
        return sum(rows[:, :, : self.length].nbytes for rows in [*self.k, *self.v])


class StaticCache(KVCache):
    """All rows are laid out beforehand; an append writes the new ones and returns views."""

    def allocate(self) -> None:
        """Lay out all rows of all layers."""
        shape = (self.n_layers, self.batch, self.config.n_kv_heads, self.max_len, self.config.head_dim)
        self.k, self.v = (torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in "kv")

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new rows into their places; see `KVCache.append`. No gradient flows through them."""
        self.check_layer(layer)
        self.check_rows(k, v)
        S = self.length + k.shape[2]
        self.k[layer, :, :, self.length : S] = k.detach()
        self.v[layer, :, :, self.length : S] = v.detach()
        return self.k[layer, :, :, :S], self.v[layer, :, :, :S]  # (B, Hkv, S, D): not the whole buffer

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers, used or not: they are taken from the start."""
        return self.k.nbytes + self.v.nbytes
