"""Small models for the tests: no two sizes are equal, so that a transpose or a swapped axis shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from helpers.model.cache import Cache
from helpers.model.config import Llama3Scaling, ModelConfig
from helpers.model.model_classes import make_model
from helpers.model.transformer import Transformer

SCALING = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16)

# Hidden 30, heads 6 of 8 (48 together), MLP 22, 19 words; KV heads of 6, 3 and 1 are MHA, GQA and MQA.
SIZES: dict[str, Any] = {
    "n_layers": 3,
    "n_heads": 6,
    "n_kv_heads": 3,
    "head_dim": 8,
    "hidden_size": 30,
    "intermediate_size": 22,
    "vocab_size": 19,
    "max_seq_len": 40,
}


def tiny_config(kind: type[ModelConfig] = ModelConfig, **changed: Any) -> ModelConfig:
    """Return the config of a small model."""
    return kind(**(SIZES | changed))


def tiny(seed: int = 0, dtype: torch.dtype = torch.float32, **changed: Any) -> Transformer:
    """Return a small model with weights large enough that attention is far from even."""
    torch.manual_seed(seed)
    model = make_model(tiny_config(**changed))
    enlarge(model)
    return model.to(dtype)


def enlarge(model: torch.nn.Module) -> None:
    """Add noise to every parameter, norms and biases among them: ones and zeros would hide mistakes."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)


def tokens(B: int, T: int, seed: int = 1) -> torch.Tensor:
    """Return ids of the small vocabulary, (B, T)."""
    return torch.randint(0, SIZES["vocab_size"], (B, T), generator=torch.Generator().manual_seed(seed))


def same(got: torch.Tensor, expected: torch.Tensor, bound: float = 1e-12) -> None:
    """Logits up to 8 in float64: sums in another order differ by 1e-15 of their size, a hundred times."""
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


@torch.no_grad()
def in_passes(model: Transformer, ids: torch.Tensor, split: list[int], cache: Cache) -> torch.Tensor:
    """Run ids in passes of these lengths; all logits, (B, T, V)."""
    return torch.cat([model(chunk, cache) for chunk in ids.split(split, dim=1)], dim=1)


@contextlib.contextmanager
def failing(model: Transformer, place: str) -> Iterator[None]:
    """A pass that reaches this module is broken off."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    hook = model.get_submodule(place).register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()
