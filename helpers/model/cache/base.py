"""What a model asks of a KV cache, and what every kind of cache shares.

The cache is an argument of the model. It alone knows where new tokens stand and what they may see; the model
asks it, and works nothing of that out by itself. In one pass over T new tokens it is asked, in this order:

    positions(T)                where the new tokens stand: (T,), or (B, T) where sequences differ
    append(layer, k, v)         in each layer: store the new rows, hand out all that may be looked at
    mask(T, layer)              in each layer: which of the rows handed out each new token may look at
    advance(T)                  once, after the last layer: the new tokens count from now on

A layer that keeps a state instead of rows asks, in place of append and mask:

    state(layer)                what the tokens so far have left, of one size whatever their number
    keep_state(layer, state)    the state after the new tokens

Until `advance` nothing has happened: a pass that fails leaves the cache as it was. Tokens seen (`length`) and
rows kept (`n_kept`) are two numbers: a window drops rows and goes on counting. Rows may be stored in any
form, as long as `append` hands out plain keys and values.
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
    """A place in a text that a cache can return to; see `Cache.snapshot`.

    Attributes:
        held: attributes of the cache as they were.
    """

    length: int
    lengths: tuple[int, ...]
    changes: int
    owner: object
    held: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of its states: what each place to return to costs."""
        return sum(state.nbytes for state in self.held.get("states", {}).values())


class Cache:
    """Keys and values of every token so far, the newest last: what the kinds of cache have in common.

    Args:
        sizes: layers, KV heads, width of a key and of a value, and the longest text: a `ModelConfig`.
        batch: sequences, B.
        max_len: tokens it takes at most; None takes max_seq_len. A kind that drops rows needs fewer rows.
        dtype: of keys and values: the model's.
        device: where they lie: the model's.

    Attributes:
        length: tokens seen.
        changes: goes up with every `advance` and `truncate`: a reply sees whether something else used it.
        can_truncate: whether `truncate` reaches every earlier length; not where rows leave, are rounded,
            or are taken into a state.
        held: names of what a snapshot holds. Tensors among it are replaced, never written over: no copies.
        state_layers: layers that keep a state.
    """

    can_truncate = True
    held: tuple[str, ...] = ()
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
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0", as tensors say it
        self.length = 0
        self.changes = 0
        self._identity = object()  # a copy has another
        self._memo: tuple[Any, Any] = (None, None)
        if self.max_len > sizes.max_seq_len:
            raise ValueError(
                f"max_len is {self.max_len}; expected at most {sizes.max_seq_len}, the model's max_seq_len"
            )
        self.allocate()

    def allocate(self) -> None:
        """Make room for keys and values."""
        raise NotImplementedError

    def empty_rows(self, n: int) -> list[Tensor]:
        """Return room for n rows of every layer, for keys and for values, (L, B, Hkv, n, D) and (…, Dv)."""
        shapes = [(self.n_layers, *shape) for shape in self.shapes(n)]
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for shape in shapes]

    def positions(self, T: int) -> Tensor:
        """Return where T new tokens stand, from 0, (T,). ValueError if they do not fit."""
        self.check_room(T)
        return torch.arange(self.length, self.length + T, device=self.device)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, S): True where a new token (row) may look at a row that `append` hands out (column).

        Where sequences differ it is (B, 1, T, S); where layers differ, each has its own.
        """
        keys = self.length + T
        return self.memo(
            (keys, T), lambda: torch.arange(keys, device=self.device) <= self.positions(T)[:, None]
        )

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` gives, or gave for the same key the last time: all layers of a pass ask."""
        key = key, torch.is_inference_mode_enabled()
        if self._memo[0] != key:
            self._memo = key, make()
        return self._memo[1]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values of one layer; return those of every position so far.

        Args:
            layer: layer index, from 0.
            k: new keys, already rotated, (B, Hkv, T, D).
            v: new values, (B, Hkv, T, Dv).

        Returns:
            Keys and values, (B, Hkv, S, D) and (B, Hkv, S, Dv), as many rows as `mask` has columns.

        Raises:
            ValueError: the rows do not fit, or have another shape or dtype; nothing has been written.

        Source: grouped KV heads, Ainslie et al. 2023, arXiv:2305.13245.
        """
        raise NotImplementedError

    def state(self, layer: int) -> Tensor:
        """Return what the tokens so far have left in a layer that keeps a state, (B, H, D, Dv)."""
        raise NotImplementedError

    def keep_state(self, layer: int, state: Tensor) -> None:
        """Take the state after the new tokens, (B, H, D, Dv); it counts from `advance` on."""
        raise NotImplementedError

    def advance(self, T: int) -> None:
        """Count T tokens as stored; the model calls it once a pass, after the last layer."""
        self.check_room(T)
        self.update(self.length + T)

    def update(self, length: int, **rest: Any) -> None:
        """Set the length, and what must change with it, in one call that Ctrl-C cannot split."""
        self.__dict__.update(rest, length=length, changes=self.changes + 1)

    def cut(self, lengths: Sequence[int], /, **rest: Any) -> None:
        """Set the length of each sequence, and what must change with it, as `update` does."""
        self.update(max(lengths), **rest)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, to go on from there. ValueError if fewer, or in `lost_lengths`."""
        self.check_length(length)
        self.cut([int(length)] * self.batch)

    def snapshot(self) -> Snapshot:
        """Return what `restore` needs to come back here: the lengths, and what is `held`."""
        held = {name: copy.copy(getattr(self, name)) for name in self.held}
        return Snapshot(self.length, tuple(self.lengths), self.changes, self._identity, held)

    def restore(self, snapshot: Snapshot) -> None:
        """Hold again exactly what the cache held when the snapshot was taken, as often as you like.

        Raises:
            ValueError: it is another cache's, or entries that it does not hold were cut off since.
        """
        self.check_own(snapshot)
        self.cut(snapshot.lengths, **{name: copy.copy(was) for name, was in snapshot.held.items()})

    def check_own(self, snapshot: Snapshot) -> None:
        """Raise ValueError unless this cache took the snapshot, and all of its entries are there."""
        if snapshot.owner is not self._identity:
            raise ValueError("a snapshot of another cache came in; expected one that this cache has taken")

    def reset(self) -> None:
        """Forget every token: one cache serves one generation."""
        self.truncate(0)

    @property
    def n_layers(self) -> int:
        """Layers it has room for."""
        return self.sizes.n_layers

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens seen, of each sequence."""
        return [self.length] * self.batch

    @property
    def n_kept(self) -> int:
        """Rows stored, in the layer that keeps most of them."""
        return self.length

    def kept(self) -> Sequence[int]:
        """Return where the tokens stand whose rows are stored, in the first layer."""
        return range(self.length)

    @property
    def lost_lengths(self) -> range:
        """Lengths to go back to at which the next token would miss rows: they have left, or are rounded."""
        return range(0)

    @property
    def nbytes(self) -> int:
        """Bytes that its keys and values take."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        """Copy the entries too: two caches that share them would write over each other's."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_kept} of {self.max_len} rows, {self.nbytes:,} bytes)"

    def shapes(self, T: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of T rows of keys and of values, of one layer."""
        B, Hkv = self.batch, self.sizes.n_kv_heads
        return (B, Hkv, T, self.sizes.k_dim), (B, Hkv, T, self.sizes.v_dim)

    def check_length(self, length: int) -> None:
        """Raise ValueError unless it can go back to so many tokens."""
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the tokens stored")
        if length in self.lost_lengths:
            raise ValueError(
                f"length is {length}, and rows that its next token sees have left or are rounded; expected "
                f"{self.lost_lengths.stop} to {self.length}, or reset() and run the text again"
            )

    def check_room(self, T: int) -> None:
        """Raise ValueError if T new tokens do not fit."""
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new tokens after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a cache with a larger max_len, or stop here. Nothing was written."
            )

    def check_rows(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Raise ValueError unless these are new rows of this cache's shape and dtype, and fit."""
        if not 0 <= layer < self.n_layers:
            raise ValueError(f"layer is {layer}; expected 0 to {self.n_layers - 1}")
        expected = self.shapes(k.shape[-2])
        if (k.shape, v.shape) != expected:
            message = f"keys {tuple(k.shape)} and values {tuple(v.shape)} came in"
            raise ValueError(f"{message}; expected {expected[0]} and {expected[1]}")
        if k.dtype is not self.dtype or v.dtype is not self.dtype:
            raise ValueError(f"keys {k.dtype} and values {v.dtype} came in; expected {self.dtype} for both")
        self.check_room(k.shape[-2])

    def check_fits(self, sizes: ModelConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raise ValueError, and name what differs, unless this cache was made for such a pass."""
        names = ("n_layers", "n_kv_heads", "k_dim", "v_dim")
        pairs: dict[str, tuple[Any, Any]] = {n: (getattr(self.sizes, n), getattr(sizes, n)) for n in names}
        pairs |= {"batch": (self.batch, batch), "dtype": (self.dtype, dtype), "device": (self.device, device)}
        pairs["state_layers"] = self.state_layers, tuple(getattr(sizes, "state_layers", ()))
        for name, (mine, theirs) in pairs.items():
            if mine != theirs:
                raise ValueError(
                    f"this cache was made for {name} {mine}, the pass has {name} {theirs}; expected the "
                    "same: model.new_cache(batch=B) makes one"
                )
