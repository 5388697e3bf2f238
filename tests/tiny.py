"""Small models for the tests.

All axes have different lengths, so that a wrong transpose or swapped axes cause an error.
"""

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
    """Return the config of a small model. `changed` replaces values of SIZES."""
    return kind(**(SIZES | changed))


def tiny(seed: int = 0, dtype: torch.dtype = torch.float32, **changed: Any) -> Transformer:
    """Return a small model whose weights are so large that its attention weights are far from uniform."""
    torch.manual_seed(seed)
    model = make_model(tiny_config(**changed))
    enlarge(model)
    return model.to(dtype)


def enlarge(model: torch.nn.Module) -> None:
    """Add noise to every parameter.

    Norms and biases are included, because their initial ones and zeros would hide mistakes.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)


def tokens(B: int, T: int, seed: int = 1) -> torch.Tensor:
    """Return random token ids from the small vocabulary, of shape (B, T)."""
    return torch.randint(0, SIZES["vocab_size"], (B, T), generator=torch.Generator().manual_seed(seed))


def same(got: torch.Tensor, expected: torch.Tensor, bound: float = 1e-12) -> None:
    """Assert that two tensors differ by `bound` at most.

    The default is for float64 logits with absolute values up to 8. If values are summed in another order, the
    logits change by about a hundred rounding errors of relative size 1e-15.
    """
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


@torch.no_grad()
def in_passes(model: Transformer, ids: torch.Tensor, split: list[int], cache: Cache) -> torch.Tensor:
    """Run token ids in several passes, and return the logits of all positions, of shape (B, T, V).

    Args:
        model: the model.
        ids: token ids of shape (B, T).
        split: number of tokens in each pass; the sum is T.
        cache: the KV cache that the passes share.
    """
    return torch.cat([model(chunk, cache) for chunk in ids.split(split, dim=1)], dim=1)


@contextlib.contextmanager
def failing(model: Transformer, place: str) -> Iterator[None]:
    """Inside the `with` block, raise KeyboardInterrupt when a pass reaches the module named `place`."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    hook = model.get_submodule(place).register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()
