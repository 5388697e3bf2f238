"""The interface of KV caches, and the base class of all cache classes.

The model receives the cache as an argument. Only the cache knows the positions of new tokens and which
entries they may attend to; the model asks for these and does not compute them itself. In a pass over T new
tokens, the model calls, in this order:

    positions(T)                once: return the positions of the new tokens, (T,), or (B, T) if sequences
                                differ
    append(layer, k, v)         in each layer: store the new entries, and return all entries of the layer
                                that may be attended to
    mask(T, layer)              in each layer: return which of these entries each new token may attend to
    advance(T)                  once, after the last layer: count the new tokens as seen

An entry is the key and value of one token in one layer. For a layer that keeps a state instead of entries,
the model makes two other calls, instead of `append` and `mask`:

    state(layer)                return the state after the tokens so far, whose shape is always the same
    set_state(layer, state)     store the state after the new tokens

Nothing takes effect before `advance`, so a pass that fails leaves the cache as it was. The number of tokens
seen (`length`) can differ from the number of entries stored (`n_entries`): a cache with a window drops
entries but goes on counting tokens. Entries may be stored in any form, as long as `append` returns ordinary
keys and values.
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
    """A saved point in a sequence, to which a cache can return; see `Cache.snapshot`.

    Attributes:
        length: number of tokens that the cache had seen.
        lengths: number of tokens seen in each sequence.
        change_count: value of `Cache.change_count` at that point.
        owner: identity of the cache that took the snapshot.
        fields: values of the cache's `snapshot_fields`, by name.
    """

    length: int
    lengths: tuple[int, ...]
    change_count: int
    owner: object
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The memory that the snapshot needs in addition to the cache, in bytes: that of its states."""
        return sum(state.nbytes for state in self.fields.get("states", {}).values())


class Cache:
    """The base class of all KV caches. A cache stores the keys and values of all tokens so far, in order.

    Args:
        config: config of the model, with the numbers of layers and KV heads, the widths of keys and values,
            and max_seq_len.
        batch: number of sequences, B.
        max_len: maximum number of tokens per sequence; None uses max_seq_len. A cache that drops entries
            stores fewer.
        dtype: dtype of keys and values, the same as the model's.
        device: device of keys and values, the same as the model's.

    Attributes:
        length: number of tokens seen.
        change_count: a counter that grows with every `advance`, `truncate` and `restore`. It tells a
            `Generation` whether something else used the cache.
        can_truncate: whether `truncate` can go back to every earlier length. False for classes that drop or
            round entries, or sum them into a state.
        snapshot_fields: names of the attributes that a snapshot contains. Tensors in these attributes are
            replaced rather than overwritten, so a snapshot need not copy them.
        state_layers: indices of the layers that keep a state, from 0.
    """

    can_truncate = True
    snapshot_fields: tuple[str, ...] = ()
    state_layers: tuple[int, ...] = ()

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
        self.batch = check_whole("batch", batch)
        self.max_len = check_whole("max_len", config.max_seq_len if max_len is None else max_len)
        self.dtype = dtype
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0", as tensors have it
        self.length = 0
        self.change_count = 0
        self._identity = object()  # a copy has a different identity
        self._memo: tuple[Any, Any] = (None, None)
        if self.max_len > config.max_seq_len:
            raise ValueError(
                f"max_len is {self.max_len}; expected at most {config.max_seq_len}, the model's max_seq_len"
            )
        self.allocate()

    def allocate(self) -> None:
        """Allocate the memory for keys and values; called once, when the cache is made."""
        raise NotImplementedError

    def empty_entries(self, n: int) -> list[Tensor]:
        """Return tensors of zeros with room for n entries in every layer.

        The keys have shape (L, B, Hkv, n, D), the values (L, B, Hkv, n, Dv).
        """
        shapes = [(self.n_layers, *shape) for shape in self.entry_shapes(n)]
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for shape in shapes]

    def positions(self, T: int) -> Tensor:
        """Return the positions of T new tokens in their sequence, from 0, of shape (T,).

        Raises:
            ValueError: the tokens do not fit into the cache.
        """
        self.check_capacity(T)
        return torch.arange(self.length, self.length + T, device=self.device)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return the attention mask: which of the entries returned by `append` each new token may attend to.

        Args:
            T: number of new tokens.
            layer: index of the layer, from 0; in some classes, layers have different masks.

        Returns:
            A boolean mask of shape (T, S), or (B, 1, T, S) if sequences differ, for T new tokens and S
            entries.
        """
        keys = self.length + T
        return self.memoize(
            (keys, T), lambda: torch.arange(keys, device=self.device) <= self.positions(T)[:, None]
        )

    def memoize(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, or the previous result if `key` is the same as in the previous call.

        A value that all layers of a pass have in common is therefore computed only once.
        """
        key = key, torch.is_inference_mode_enabled()
        if self._memo[0] != key:
            self._memo = key, make()
        return self._memo[1]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values. Return all keys and values that may be attended to.

        Args:
            layer: index of the layer, from 0.
            k: keys of the new tokens, already rotated, of shape (B, Hkv, T, D).
            v: values of the new tokens, of shape (B, Hkv, T, Dv).

        Returns:
            Keys of shape (B, Hkv, S, D) and values of shape (B, Hkv, S, Dv), earlier tokens first. S is the
            number of columns of the mask.

        Raises:
            ValueError: the entries do not fit, or have the wrong shape or dtype; nothing was written.

        Source: grouped KV heads, Ainslie et al. 2023, arXiv:2305.13245.
        """
        raise NotImplementedError

    def state(self, layer: int) -> Tensor:
        """Return a layer's state after the tokens so far, of shape (B, H, D, Dv)."""
        raise NotImplementedError

    def set_state(self, layer: int, state: Tensor) -> None:
        """Store a layer's state after the new tokens, of shape (B, H, D, Dv).

        It takes effect in `advance`.
        """
        raise NotImplementedError

    def advance(self, T: int) -> None:
        """Count the T new tokens as seen. The model calls this once per pass, after the last layer."""
        self.check_capacity(T)
        self.commit(self.length + T)

    def commit(self, length: int, **fields: Any) -> None:
        """Set `length` and the attributes that change with it, in one call, which Ctrl-C cannot interrupt."""
        self.__dict__.update(fields, length=length, change_count=self.change_count + 1)

    def set_lengths(self, lengths: Sequence[int], /, **fields: Any) -> None:
        """Set the number of tokens seen in each sequence. Keyword arguments are as in `commit`."""
        self.commit(max(lengths), **fields)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` tokens.

        Raises:
            ValueError: the cache has fewer tokens, or cannot go back to that length; see
                `unreachable_lengths`.
        """
        self.check_length(length)
        self.set_lengths([int(length)] * self.batch)

    def snapshot(self) -> Snapshot:
        """Return a snapshot with which `restore` can return to this point."""
        fields = {name: copy.copy(getattr(self, name)) for name in self.snapshot_fields}
        return Snapshot(self.length, tuple(self.lengths), self.change_count, self._identity, fields)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the cache to exactly the point at which the snapshot was taken.

        A snapshot can be restored any number of times.

        Raises:
            ValueError: another cache took the snapshot, or entries that the snapshot needs have been
                truncated since.
        """
        self.check_snapshot(snapshot)
        fields = {name: copy.copy(value) for name, value in snapshot.fields.items()}
        self.set_lengths(snapshot.lengths, **fields)

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """Raise ValueError unless this cache took the snapshot and still has the entries that it needs."""
        if snapshot.owner is not self._identity:
            raise ValueError("the snapshot is of another cache; expected one that this cache has taken")

    def reset(self) -> None:
        """Forget all tokens, so that the cache can be used for another generation."""
        self.truncate(0)

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return self.config.n_layers

    @property
    def lengths(self) -> Sequence[int]:
        """The number of tokens seen in each sequence."""
        return [self.length] * self.batch

    @property
    def n_entries(self) -> int:
        """The number of entries stored per sequence, in the layer that stores the most."""
        return self.length

    def entry_positions(self) -> Sequence[int]:
        """Return the positions, from 0, of the tokens whose entries are stored in the first layer."""
        return range(self.length)

    @property
    def unreachable_lengths(self) -> range:
        """The earlier lengths to which `truncate` cannot go back.

        At these lengths, the next token would need entries that were dropped or rounded.
        """
        return range(0)

    @property
    def nbytes(self) -> int:
        """The memory of all stored keys and values, in bytes."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        """Return a copy with its own entries.

        If two caches shared entries, each could overwrite the other's.
        """
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_entries} of {self.max_len} entries, {self.nbytes:,} bytes)"

    def entry_shapes(self, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return two shapes, for keys and for values, of tensors with room for n entries in one layer."""
        B, Hkv = self.batch, self.config.n_kv_heads
        return (B, Hkv, n, self.config.k_dim), (B, Hkv, n, self.config.v_dim)

    def check_length(self, length: int) -> None:
        """Raise ValueError unless `truncate` can go back to this number of tokens."""
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the tokens stored")
        if length in self.unreachable_lengths:
            raise ValueError(
                f"length is {length}, but entries that the next token needs were dropped or rounded; expected"
                f" {self.unreachable_lengths.stop} to {self.length}, or reset() and run the text again"
            )

    def check_capacity(self, T: int) -> None:
        """Raise ValueError if T new tokens do not fit into the cache."""
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new tokens after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a cache with a larger max_len, or stop here. Nothing was written."
            )

    def check_entries(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Raise ValueError unless new entries have this cache's shape and dtype, and fit into it."""
        if not 0 <= layer < self.n_layers:
            raise ValueError(f"layer is {layer}; expected 0 to {self.n_layers - 1}")
        expected = self.entry_shapes(k.shape[-2])
        if (k.shape, v.shape) != expected:
            message = f"got keys {tuple(k.shape)} and values {tuple(v.shape)}"
            raise ValueError(f"{message}; expected {expected[0]} and {expected[1]}")
        if k.dtype is not self.dtype or v.dtype is not self.dtype:
            raise ValueError(f"got keys {k.dtype} and values {v.dtype}; expected {self.dtype} for both")
        self.check_capacity(k.shape[-2])

    def check_fits(self, config: ModelConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raise ValueError unless the cache fits this pass; the message names the difference.

        Args:
            config: config of the model.
            batch: number of sequences.
            dtype, device: dtype and device of the model's weights.
        """
        names = ("n_layers", "n_kv_heads", "k_dim", "v_dim")
        pairs: dict[str, tuple[Any, Any]] = {n: (getattr(self.config, n), getattr(config, n)) for n in names}
        pairs |= {"batch": (self.batch, batch), "dtype": (self.dtype, dtype), "device": (self.device, device)}
        pairs["state_layers"] = self.state_layers, tuple(getattr(config, "state_layers", ()))
        for name, (actual, expected) in pairs.items():
            if actual != expected:
                raise ValueError(
                    f"this cache was made for {name} {actual}, the pass has {name} {expected}; expected the "
                    "same: model.new_cache(batch=B) makes one"
                )
