"""A cache that keeps a state in some layers, and KV entries in the other layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache


class StateCache(GrowingCache):
    """A cache that keeps a state in the layers `config.state_layers` and entries in the other layers.

    Each head's state has a fixed shape. It is a sum over tokens, from which no single token can be removed.
    `truncate` can therefore go back only to length 0, and `restore` only to a point at which a snapshot was
    taken. If no layer keeps a state, this class works like a `GrowingCache`.

    Attributes:
        states: state of each layer that keeps one, by the layer's index, of shape (B, H, D, Dv); zeros before
            the first token.
    """

    snapshot_fields = ("k", "v", "states")

    def allocate(self) -> None:
        super().allocate()
        self.state_layers = tuple(getattr(self.config, "state_layers", ()))
        self.can_truncate = not self.state_layers
        self.states = {layer: self.initial_state() for layer in self.state_layers}
        self._new = dict[int, Tensor]()

    def initial_state(self) -> Tensor:
        """Return the state of a layer before the first token: zeros, of shape (B, H, D, Dv)."""
        config: Any = self.config
        shape = self.batch, config.n_heads, config.k_dim, config.v_dim
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def n_stored(self, layer: int) -> int:
        return 0 if layer in self.states else self.length

    def state(self, layer: int) -> Tensor:
        return self.states[layer]

    def set_state(self, layer: int, state: Tensor) -> None:
        self._new[layer] = state

    def advance(self, T: int) -> None:
        """Count the T new tokens as seen, and adopt the states that `set_state` stored for them."""
        self.check_capacity(T)
        self.commit(self.length + T, states=self.states | self._new)

    def commit(self, length: int, **fields: Any) -> None:
        super().commit(length, _new={}, **fields)

    def truncate(self, length: int) -> None:
        """Keep only the first `length` tokens.

        If a layer keeps a state, `length` must be 0 or the current length.

        Raises:
            ValueError: as in `Cache.truncate`.
        """
        self.check_length(length)
        states = self.states if length else {layer: self.initial_state() for layer in self.states}
        self.set_lengths([int(length)], states=states)

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if self.states and length not in (0, self.length):
            raise ValueError(
                f"length is {length} of {self.length} tokens; {len(self.states)} of {self.n_layers} layers "
                "keep a state, a sum from which no token can be removed; expected all of them or none, or "
                "restore(snapshot)"
            )

    @property
    def n_entries(self) -> int:
        return max(map(self.n_stored, range(self.n_layers)))

    @property
    def nbytes(self) -> int:
        """The memory of the states and of the entries, in bytes. Only that of the entries grows."""
        return super().nbytes + sum(state.nbytes for state in self.states.values())
