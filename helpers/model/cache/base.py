"""What a model asks of a KV cache, and what all cache classes share.

The cache is an argument of the model. It alone knows the positions of new tokens and what they may attend to;
the model asks it, and computes none of this itself. One pass over T new tokens calls, in this order:

    positions(T)                the positions of the new tokens: (T,), or (B, T) where sequences differ
    append(layer, k, v)         in each layer: store the new entries, return all that may be attended to
    mask(T, layer)              in each layer: which of the returned entries each new token may attend to
    advance(T)                  once, after the last layer: the new tokens count from now on

One entry is one token's K and V in one layer. A layer that keeps a state instead of entries calls, instead of
append and mask:

    state(layer)                the state after the tokens so far, of the same size whatever their number
    set_state(layer, state)     the state after the new tokens

Nothing takes effect before `advance`: a pass that fails leaves the cache as it was. The number of tokens seen
(`length`) and the number of entries stored (`n_entries`) differ: a window drops entries and goes on counting
tokens. Entries may be stored in any form, as long as `append` returns plain keys and values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from helpers.model.config import ModelConfig
from helpers.validate import check_whole, is_whole


@dataclass(frozen=True)
class Snapshot:
    """A point in a text that a cache can return to; see `Cache.snapshot`.

    Attributes:
        fields: the cache's attributes as they were then, by name.
    """

    length: int
    lengths: tuple[int, ...]
    changes: int
    owner: object
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of its states: the memory that each point to return to costs."""
        return sum(state.nbytes for state in self.fields.get("states", {}).values())


class Cache:
    """Keys and values of every token so far, the newest last: the base class of all caches.

    Args:
        sizes: number of layers and KV heads, widths of keys and values, maximum length: a `ModelConfig`.
        batch: number of sequences, B.
        max_len: maximum number of tokens; None uses max_seq_len. A class that drops entries stores fewer.
        dtype: of keys and values: the model's.
        device: of keys and values: the model's.

    Attributes:
        length: number of tokens seen.
        changes: grows with every `advance` and `truncate`, so that a reply notices if something else used
            the cache.
        can_truncate: whether `truncate` can go back to every earlier length. It cannot where entries are
            dropped, rounded, or summed into a state.
        snapshot_fields: names of the attributes that a snapshot holds. Tensors among them are replaced and
            never overwritten, so they need no copy.
        state_layers: layers that keep a state.
    """

    can_truncate = True
    snapshot_fields: tuple[str, ...] = ()
    state_layers: tuple[int, ...] = ()

    def __init__(
        self,
        sizes: ModelConfig,
        batch: int = 1,
        max_len: int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sizes = sizes
        self.batch = check_whole("batch", batch)
        self.max_len = check_whole("max_len", sizes.max_seq_len if max_len is None else max_len)
        self.dtype = dtype
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0", as tensors have it
        self.length = 0
        self.changes = 0
        self._identity = object()  # a copy has a different one
        self._memo: tuple[Any, Any] = (None, None)
        if self.max_len > sizes.max_seq_len:
            raise ValueError(
                f"max_len is {self.max_len}; expected at most {sizes.max_seq_len}, the model's max_seq_len"
            )
        self.allocate()

    def allocate(self) -> None:
        """Allocate memory for keys and values."""
        raise NotImplementedError

    def empty_entries(self, n: int) -> list[Tensor]:
        """Return zeros for n entries of every layer: keys (L, B, Hkv, n, D) and values (…, Dv)."""
        shapes = [(self.n_layers, *shape) for shape in self.entry_shapes(n)]
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for shape in shapes]

    def positions(self, T: int) -> Tensor:
        """Return the positions of T new tokens, from 0, (T,). ValueError if they do not fit."""
        self.check_capacity(T)
        return torch.arange(self.length, self.length + T, device=self.device)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, S): True where a new token (row) may attend to an entry that `append` returns (column).

        It is (B, 1, T, S) where sequences differ. Where layers differ, each layer has its own mask.
        """
        keys = self.length + T
        return self.memo(
            (keys, T), lambda: torch.arange(keys, device=self.device) <= self.positions(T)[:, None]
        )

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, or its last result if the key is the same: all layers of a pass ask for it."""
        key = key, torch.is_inference_mode_enabled()
        if self._memo[0] != key:
            self._memo = key, make()
        return self._memo[1]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values of one layer; return those of all positions so far.

        Args:
            layer: index of the layer, from 0.
            k: new keys, already rotated, (B, Hkv, T, D).
            v: new values, (B, Hkv, T, Dv).

        Returns:
            Keys and values, (B, Hkv, S, D) and (B, Hkv, S, Dv); S is the number of columns of `mask`.

        Raises:
            ValueError: the entries do not fit, or have the wrong shape or dtype; nothing has been written.

        Source: grouped KV heads, Ainslie et al. 2023, arXiv:2305.13245.
        """
        raise NotImplementedError

    def state(self, layer: int) -> Tensor:
        """Return the state of a layer after the tokens so far, (B, H, D, Dv)."""
        raise NotImplementedError

    def set_state(self, layer: int, state: Tensor) -> None:
        """Store a layer's state after the new tokens, (B, H, D, Dv); it takes effect in `advance`."""
        raise NotImplementedError

    def advance(self, T: int) -> None:
        """Count T tokens as stored; the model calls this once a pass, after the last layer."""
        self.check_capacity(T)
        self.update(self.length + T)

    def update(self, length: int, **fields: Any) -> None:
        """Set the length and the fields that change with it, in one call that Ctrl-C cannot split."""
        self.__dict__.update(fields, length=length, changes=self.changes + 1)

    def set_lengths(self, lengths: Sequence[int], /, **fields: Any) -> None:
        """Set the length of each sequence and the fields that change with it, as `update` does."""
        self.update(max(lengths), **fields)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens. ValueError if there are fewer, or as in `unreachable_lengths`."""
        self.check_length(length)
        self.set_lengths([int(length)] * self.batch)

    def snapshot(self) -> Snapshot:
        """Return what `restore` needs to return to this point: the lengths and the `snapshot_fields`."""
        fields = {name: copy.copy(getattr(self, name)) for name in self.snapshot_fields}
        return Snapshot(self.length, tuple(self.lengths), self.changes, self._identity, fields)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to exactly what the cache held when the snapshot was taken; this works repeatedly.

        Raises:
            ValueError: another cache took the snapshot, or entries that it needs were truncated since.
        """
        self.check_snapshot(snapshot)
        fields = {name: copy.copy(value) for name, value in snapshot.fields.items()}
        self.set_lengths(snapshot.lengths, **fields)

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """Raise ValueError unless this cache took the snapshot and still has all of its entries."""
        if snapshot.owner is not self._identity:
            raise ValueError("the snapshot is of another cache; expected one that this cache has taken")

    def reset(self) -> None:
        """Forget all tokens: one cache serves one generation at a time."""
        self.truncate(0)

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return self.sizes.n_layers

    @property
    def lengths(self) -> Sequence[int]:
        """The number of tokens seen, for each sequence."""
        return [self.length] * self.batch

    @property
    def n_entries(self) -> int:
        """The number of entries stored, in the layer that stores most."""
        return self.length

    def entry_positions(self) -> Sequence[int]:
        """Return the positions of the tokens whose entries are stored, in the first layer."""
        return range(self.length)

    @property
    def unreachable_lengths(self) -> range:
        """Lengths that `truncate` cannot go back to: the next token would need dropped or rounded entries."""
        return range(0)

    @property
    def nbytes(self) -> int:
        """Bytes of its keys and values."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        """Copy the entries too: two caches that share them would overwrite each other's."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_entries} of {self.max_len} entries, {self.nbytes:,} bytes)"

    def entry_shapes(self, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the keys and of the values of n entries of one layer."""
        B, Hkv = self.batch, self.sizes.n_kv_heads
        return (B, Hkv, n, self.sizes.k_dim), (B, Hkv, n, self.sizes.v_dim)

    def check_length(self, length: int) -> None:
        """Raise ValueError unless the cache can go back to this number of tokens."""
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the tokens stored")
        if length in self.unreachable_lengths:
            raise ValueError(
                f"length is {length}, but entries that the next token needs were dropped or rounded; expected"
                f" {self.unreachable_lengths.stop} to {self.length}, or reset() and run the text again"
            )

    def check_capacity(self, T: int) -> None:
        """Raise ValueError if T new tokens do not fit."""
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new tokens after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a cache with a larger max_len, or stop here. Nothing was written."
            )

    def check_entries(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Raise ValueError unless these new entries have this cache's shape and dtype, and fit."""
        if not 0 <= layer < self.n_layers:
            raise ValueError(f"layer is {layer}; expected 0 to {self.n_layers - 1}")
        expected = self.entry_shapes(k.shape[-2])
        if (k.shape, v.shape) != expected:
            message = f"got keys {tuple(k.shape)} and values {tuple(v.shape)}"
            raise ValueError(f"{message}; expected {expected[0]} and {expected[1]}")
        if k.dtype is not self.dtype or v.dtype is not self.dtype:
            raise ValueError(f"got keys {k.dtype} and values {v.dtype}; expected {self.dtype} for both")
        self.check_capacity(k.shape[-2])

    def check_fits(self, sizes: ModelConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raise ValueError, naming what differs, unless this cache was made for such a pass."""
        names = ("n_layers", "n_kv_heads", "k_dim", "v_dim")
        pairs: dict[str, tuple[Any, Any]] = {n: (getattr(self.sizes, n), getattr(sizes, n)) for n in names}
        pairs |= {"batch": (self.batch, batch), "dtype": (self.dtype, dtype), "device": (self.device, device)}
        pairs["state_layers"] = self.state_layers, tuple(getattr(sizes, "state_layers", ()))
        for name, (actual, expected) in pairs.items():
            if actual != expected:
                raise ValueError(
                    f"this cache was made for {name} {actual}, the pass has {name} {expected}; expected the "
                    "same: model.new_cache(batch=B) makes one"
                )
