"""A cache that keeps a state in some layers, and rows in the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache


class StateCache(GrowingCache):
    """One state a head in the layers `sizes.state_layers`, of one size whatever the text; rows in the others.

    A state is a sum, out of which no token can be taken. So `truncate` reaches the present length and 0 only,
    and `restore` a place where a `snapshot` was taken. Without such layers it is a `GrowingCache`.

    Attributes:
        states: of each such layer, (B, H, D, Dv); zeros before the first token.
    """

    held = ("k", "v", "states")

    def allocate(self) -> None:
        super().allocate()
        self.state_layers = tuple(getattr(self.sizes, "state_layers", ()))
        self.can_truncate = not self.state_layers
        self.states, self._new = {layer: self.zeros() for layer in self.state_layers}, dict[int, Tensor]()

    def zeros(self) -> Tensor:
        """Return the state of a layer before the first token."""
        sizes: Any = self.sizes
        shape = self.batch, sizes.n_heads, sizes.k_dim, sizes.v_dim
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def rows_of(self, layer: int) -> int:
        return 0 if layer in self.states else self.length

    def state(self, layer: int) -> Tensor:
        return self.states[layer]

    def keep_state(self, layer: int, state: Tensor) -> None:
        self._new[layer] = state

    def advance(self, T: int) -> None:
        """Count T tokens as stored, and the states that have taken them."""
        self.check_room(T)
        self.update(self.length + T, states=self.states | self._new)

    def update(self, length: int, **rest: Any) -> None:
        super().update(length, _new={}, **rest)

    def truncate(self, length: int) -> None:
        """Keep the present length or 0 tokens; another length only if no layer keeps a state."""
        self.check_length(length)
        states = self.states if length else {layer: self.zeros() for layer in self.states}
        self.cut([int(length)], states=states)

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if self.states and length not in (0, self.length):
            raise ValueError(
                f"length is {length}, {self.length} tokens are in; layers {[*self.states]} keep a state, a "
                "sum that no token can be taken out of; expected all of them or none, or restore(snapshot)"
            )

    @property
    def n_kept(self) -> int:
        return max(map(self.rows_of, range(self.n_layers)))

    def kept(self) -> range:
        return range(self.rows_of(0))

    @property
    def nbytes(self) -> int:
        """Bytes of the states, which stay as they are, and of the rows."""
        return super().nbytes + sum(state.nbytes for state in self.states.values())
