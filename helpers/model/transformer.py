"""The whole decoder: embedding, blocks (attention and MLP), final norm and LM head.

Training, prefill and decode all run the same `Transformer.forward`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.attention import Attention, rope_cos_sin, rope_frequencies
from helpers.model.cache import Cache, GrowingCache
from helpers.model.config import ModelConfig


class RMSNorm(nn.Module):
    """A norm that divides a token's vector by its root mean square, then multiplies by a learned weight.

    Source: Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each token's vector in x, of shape (…, C).

        The mean square is computed in float32 or a wider dtype.
        """
        x32 = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = x32 * torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * normed.to(x.dtype)


class SwiGLU(nn.Module):
    """The MLP: down(silu(gate(x)) · up(x)), where gate, up and down are linear layers.

    Source: Shazeer 2020, arXiv:2002.05202.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        C, F_ = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(C, F_, bias=False)
        self.up_proj = nn.Linear(C, F_, bias=False)
        self.down_proj = nn.Linear(F_, C, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to each token's vector separately; x and the result have shape (B, T, C)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention, which moves information between tokens, then an MLP for each token separately."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Return the residual stream after this layer: x plus the outputs of attention and of the MLP.

        x and the result have shape (B, T, C). The other arguments are those of `Attention.forward`.
        """
        x = x + self.self_attn(self.input_layernorm(x), cos_sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    """A decoder of the Llama family, with parameters named as in Hugging Face checkpoints.

    The initial weight matrices are drawn from a normal distribution with standard deviation 0.02, with
    PyTorch's global random number generator.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.frequencies = rope_frequencies(config)  # not a buffer: model.to(bfloat16) would round it
        self.tie_weights()
        self.apply(init_weights)

    def tie_weights(self) -> None:
        """Let the LM head share the embedding's matrix if `config.tied` is true."""
        if self.config.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def new_cache(self, cache_class: type[Cache] = GrowingCache, **sizes: int) -> Cache:
        """Return an empty cache for this model, with the model's dtype and on the model's device.

        Args:
            cache_class: class of the cache.
            sizes: keyword arguments of the class, such as `batch` and `max_len`.
        """
        weight = self.embed_tokens.weight
        return cache_class(self.config, **sizes, dtype=weight.dtype, device=weight.device)

    def forward(self, tokens: Tensor, cache: Cache | None = None, *, last_only: bool = False) -> Tensor:
        """Run new tokens through every layer. The KV entries of earlier tokens are read from the cache.

        Args:
            tokens: ids of the new tokens, of shape (B, T).
            cache: has the entries of the earlier tokens, and receives those of the new tokens. None means
                that there are no earlier tokens.
            last_only: whether to compute the logits of the last position only, which avoids a T × V matrix
                for a long prompt.

        Returns:
            Logits, of shape (B, T, V), or (B, 1, V) if `last_only`.

        Raises:
            ValueError: the tokens are invalid or do not fit into the cache, which is then unchanged.
        """
        check_tokens(tokens, self.config.vocab_size)
        B, T = tokens.shape
        cache = self.new_cache(batch=B) if cache is None else cache
        check_cache(cache, self, B)
        x = self.embed_tokens(tokens)  # (B, T, C)
        cos_sin = rope_cos_sin(cache.positions(T), self.frequencies.to(x.device), x.dtype)
        for block in self.layers:
            x = block(x, cos_sin, cache)
        x = x[:, -1:] if last_only else x
        logits = self.lm_head(self.norm(x))  # (B, T, V) or (B, 1, V)
        cache.advance(T)  # last, so that a pass that fails leaves the cache as it was
        return logits


def init_weights(module: nn.Module) -> None:
    """Initialize a linear layer or an embedding with random weights and zero biases. Ignore other modules."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def check_tokens(tokens: Tensor, vocab_size: int) -> None:
    """Raise ValueError unless `tokens` is a (B, T) tensor of ids in the vocabulary, with at least one id.

    The range of the ids is not checked in compiled code, nor on a GPU, where every step would have to wait
    for the result. `generate` checks the prompt before moving it to the GPU.
    """
    got = getattr(tokens, "dtype", type(tokens).__name__)
    if got not in (torch.int64, torch.int32):
        raise ValueError(f"tokens are {got}; expected a tensor of whole numbers (torch.int64)")
    if tokens.ndim != 2 or not tokens.numel():
        raise ValueError(f"tokens have shape {tuple(tokens.shape)}; expected (B, T), at least one token")
    if tokens.is_cpu and not torch.compiler.is_compiling():
        ids = tokens.flatten().tolist()  # faster than PyTorch's operators for the few tokens of a step
        for token in (min(ids), max(ids)):
            if not 0 <= token < vocab_size:
                raise ValueError(f"token id {token} is out of range; expected 0 to {vocab_size - 1}")


def check_cache(cache: Cache, model: Transformer, batch: int) -> None:
    """Raise ValueError unless the cache is a `Cache` that fits this model and this number of sequences."""
    if not isinstance(cache, Cache):
        got = getattr(cache, "__name__", type(cache).__name__)
        raise ValueError(f"cache is {got}; expected an object, such as model.new_cache(StaticCache)")
    weight = model.embed_tokens.weight
    cache.check_fits(model.config, batch, weight.dtype, weight.device)
