"""A faster twin of a model, opt-in: the taught model stays as it is.

A decode step reads every weight once and launches some 20 operators a layer. The twin keeps its weights in
float32, float16 or int8, so that fewer bytes are read; runs all layers in one compiled call, so that no
operator is launched in between; and lets the cores share each matrix. `kernels` holds the loops.

    passes of a few tokens over preallocated rows or pages  one call for all layers
    longer passes, longer contexts and other caches         the taught modules, each linear a `NarrowLinear`

A hook on a part of the twin asks for the modules, too. The rows of the cache stay float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor, nn

from helpers.model import kernels
from helpers.model.cache import Cache, PagedCache, StaticCache
from helpers.model.transformer import Block, Transformer, check_cache, check_tokens
from helpers.validate import is_whole

BITS = (32, 16, 8)
FEW = 32  # tokens of a pass up to which a kernel, which reads narrow weights as they lie, beats MKL
PAIRS = 2**14  # tokens of a pass times rows up to which the kernel's attention beats PyTorch's
PER_THREAD = 2**14  # weights of a product below which one more thread costs more time than it saves
IN_PAGES = (StaticCache, PagedCache)  # caches whose rows lie in pages (L, P, Hkv, R, D)


def speed_up(model: Transformer, *, bits: int = 32, threads: int | None = None) -> FastTransformer:
    """Return a twin of a model, for inference on a CPU, batch times new tokens up to 32 at its best.

    Args:
        model: in float32 on the CPU. It stays as it is; the twin shares its embedding and last norm and has
            copies of the rest as it is now.
        bits: of a weight in memory. 32 differs from the model by rounding only. 16 rounds each weight to
            float16, a part in 2,048 at most. 8 rounds it to one of 255 steps of its row's largest: lossy.
            What is computed is float32 with all of them.
        threads: that share each matrix. By default as many as PyTorch has, but each gets at least 2**14
            weights of an average product: with fewer, starting it takes longer than its work.

    Raises:
        ValueError: another number of bits or threads, a model that is not a plain Transformer of float32 on
            the CPU, or weights that are no numbers or too large for the bits.
    """
    if bits not in BITS:
        raise ValueError(f"bits is {bits!r}; expected 32, 16 or 8")
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if not (threads is None or (is_whole(threads) and 1 <= threads <= most)):
        raise ValueError(f"threads is {threads!r}; expected 1 to {most}")
    check_known(model)
    if threads is None:
        threads = min(most, torch.get_num_threads(), max(1, weights_per_product(model) // PER_THREAD))
    of_torch = torch.get_num_threads()
    numba.set_num_threads(1)  # the first call starts Numba's threads, and sets PyTorch's number as well
    torch.set_num_threads(of_torch)
    twin = FastTransformer(model, bits)
    # Each kernel that is needed is compiled now, or read from Numba's cache, by one process at a time: where
    # two write that cache at once, what one compiled may come to lie under the other's types, and the next
    # process crashes: https://github.com/numba/numba/issues/4807.
    with FileLock(Path(kernels.product.stats.cache_path) / "kernels.lock"), torch.inference_mode():
        twin(torch.zeros(1, 1, dtype=torch.int64), StaticCache(twin.config, max_len=1))
    twin.threads = threads
    return twin


def weights_per_product(model: Transformer) -> int:
    """Return the average number of weights of a layer's four products, as `stacked` joins them."""
    layers = [part.weight.numel() for part in model.layers.modules() if isinstance(part, nn.Linear)]
    return sum(layers) // (4 * len(model.layers))


def check_known(model: Transformer) -> None:
    """Raise ValueError unless a model is no more than its config and its weights, in float32 on the CPU."""
    if type(model) is not Transformer:
        raise ValueError(f"the model is of type {type(model).__name__}; expected a Transformer as it is")
    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32 or not weight.is_cpu:
            raise ValueError(
                f"{name} is {weight.dtype} on {weight.device}; expected float32 on the CPU: load the model "
                "with dtype=torch.float32"
            )
    with torch.device("meta"):  # sizes, and no memory
        plain = Transformer(model.config)
    weights = model.state_dict()
    known = plain.state_dict().keys() == weights.keys()
    if known:
        plain.load_state_dict(weights, assign=True)
        few = torch.arange(min(4, model.config.vocab_size, model.config.max_seq_len))[None]
        with torch.inference_mode():
            known = torch.allclose(model(few), plain(few), rtol=1e-4, atol=1e-4, equal_nan=True)
    if not known:
        raise ValueError(
            "the model's logits are not those of its config and weights; expected one whose parts, settings "
            "and hooks nobody has changed: use it as it is, or hook the twin"
        )


def narrowed(weight: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix (F, C) in so many bits, as `kernels` reads it, and the scale of each row (F,)."""
    largest = np.abs(weight).max()
    if not largest <= np.finfo(np.float16 if bits == 16 else np.float32).max:  # NaN, too
        raise ValueError(f"the largest weight is {largest:g}; expected a number that fits into {bits} bits")
    ones = np.ones(len(weight), np.float32)
    if bits == 32:
        return weight, ones
    if bits == 16:
        return weight.astype(np.float16).view(np.uint16), ones
    scale = np.abs(weight).max(axis=1) / np.float32(127)
    steps = weight / np.where(scale > 0, scale, 1)[:, None]
    return np.rint(steps).astype(np.int8), scale


class NarrowLinear(nn.Module):
    """A linear layer whose matrix lies in memory in fewer bits; x (…, C) → (…, F).

    Args:
        matrix, scale, bias: (F, C), (F,), (F,), as `narrowed` makes them.
    """

    def __init__(self, matrix: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.matrix, self.scale, self.bias = matrix, scale, bias

    def forward(self, x: Tensor) -> Tensor:
        rows = np.ascontiguousarray(x.detach().reshape(-1, x.shape[-1]).numpy())
        times = self.few if len(rows) <= FEW else self.many
        return times(rows).view(*x.shape[:-1], -1)

    def few(self, rows: np.ndarray) -> Tensor:
        """rows (N, C) → (N, F), by the kernel."""
        out = np.empty((len(rows), len(self.matrix)), np.float32)
        kernels.product(rows, self.matrix, self.scale, self.bias, out)
        return torch.from_numpy(out)

    def many(self, rows: np.ndarray) -> Tensor:
        """rows (N, C) → (N, F), by PyTorch, which multiplies float32: the matrix is widened for it.

        By PyTorch, too: its threads and Numba's, taking turns, wait for each other in busy loops. By oneDNN
        where PyTorch has it, which is twice as fast as its first choice, MKL, on AMD's processors.
        """
        matrix = self.matrix.view(np.float16) if self.matrix.dtype == np.uint16 else self.matrix
        x, weight, scale, bias = map(torch.from_numpy, (rows, matrix, self.scale, self.bias))
        if torch.backends.mkldnn.is_available():
            x = x.to_mkldnn()
        return torch.addcmul(bias, F.linear(x, weight.float()).to_dense(), scale)


def stacked(layers: Iterable[Sequence[nn.Linear]], bits: int) -> kernels.Matrices:
    """Return what is one product in each layer, its linear layers below each other, for all layers."""
    matrices, scales, biases = [], [], []
    for linears in layers:
        matrix, scale = narrowed(np.concatenate([x.weight.detach().numpy() for x in linears]), bits)
        bias = [torch.zeros(x.out_features) if x.bias is None else x.bias.detach() for x in linears]
        matrices.append(matrix)
        scales.append(scale)
        biases.append(torch.cat(bias).numpy())
    return np.stack(matrices), np.stack(scales), np.stack(biases)


def linears(matrices: kernels.Matrices, layer: int, olds: Sequence[nn.Linear]) -> list[NarrowLinear]:
    """Return the linear layers that were stacked, each on its rows; nothing is copied."""
    ends = np.cumsum([old.out_features for old in olds])
    return [
        NarrowLinear(*(part[layer, end - old.out_features : end] for part in matrices))
        for end, old in zip(ends, olds, strict=True)
    ]


class FastTransformer(Transformer):
    """The twin that `speed_up` makes; used like any `Transformer`, but not trained, saved or moved.

    Attributes:
        bits: of a weight in memory.
        threads: that share each matrix.
    """

    def __init__(self, model: Transformer, bits: int) -> None:
        nn.Module.__init__(self)  # no weights are drawn
        self.config, self.frequencies = model.config, model.frequencies
        self.embed_tokens, self.norm = model.embed_tokens, model.norm
        self.bits, self.threads = bits, 1
        blocks: list[Any] = list(model.layers)
        attention, mlp = [b.self_attn for b in blocks], [b.mlp for b in blocks]
        self.qkv = stacked(((a.q_proj, a.k_proj, a.v_proj) for a in attention), bits)
        self.o = stacked(((a.o_proj,) for a in attention), bits)
        self.gate_up = stacked(((m.gate_proj, m.up_proj) for m in mlp), bits)
        self.down = stacked(((m.down_proj,) for m in mlp), bits)
        norms = [(b.input_layernorm.weight, b.post_attention_layernorm.weight) for b in blocks]
        self.norms = np.stack([[weight.detach().numpy() for weight in pair] for pair in norms])
        self.last_norm, self.eps = model.norm.weight.detach().numpy(), np.float32(model.norm.eps)
        self.layers = nn.ModuleList(self.block(layer, block) for layer, block in enumerate(blocks))
        self.lm_head: Any = NarrowLinear(*(part[0] for part in stacked([[model.lm_head]], bits)))
        parts = [*self.modules()][1:]
        self.hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]

    def block(self, layer: int, plain: Any) -> Block:
        """Return a layer made of the taught modules, on rows of the stacked matrices."""
        with torch.device("meta"):  # sizes, and no memory
            block: Any = Block(self.config, layer)
        block.input_layernorm = deepcopy(plain.input_layernorm)
        block.post_attention_layernorm = deepcopy(plain.post_attention_layernorm)
        attention, mlp, old = block.self_attn, block.mlp, plain.self_attn
        attention.q_proj, attention.k_proj, attention.v_proj = linears(
            self.qkv, layer, (old.q_proj, old.k_proj, old.v_proj)
        )
        (attention.o_proj,) = linears(self.o, layer, (old.o_proj,))
        mlp.gate_proj, mlp.up_proj = linears(self.gate_up, layer, (plain.mlp.gate_proj, plain.mlp.up_proj))
        (mlp.down_proj,) = linears(self.down, layer, (plain.mlp.down_proj,))
        return block

    def forward(self, tokens: Tensor, cache: Cache | None = None, *, last_only: bool = False) -> Tensor:
        """Run new tokens through every layer; arguments, result and errors as in `Transformer`."""
        if numba.get_num_threads() != self.threads:
            numba.set_num_threads(self.threads)
        if cache is None or type(cache) not in IN_PAGES or not self.one_call_pays(tokens, cache):
            with torch.no_grad():
                return super().forward(tokens, cache, last_only=last_only)
        check_tokens(tokens, self.config.vocab_size)
        check_cache(cache, self, len(tokens))
        cache.check_capacity(tokens.shape[1])  # compiled loops would write behind it
        x = self.in_one_call(tokens, cache)  # (B, T, C)
        x = np.ascontiguousarray(x[:, -1:] if last_only else x)
        normed = np.empty((x.shape[0] * x.shape[1], x.shape[2]), np.float32)
        kernels.norm_loop(x.reshape(normed.shape), self.last_norm, self.eps, normed)
        logits = self.lm_head.few(normed).view(*x.shape[:2], -1)
        cache.advance(tokens.shape[1])
        return logits

    def one_call_pays(self, tokens: Tensor, cache: Any) -> bool:
        """Whether the pass is small enough, and nobody wants to watch a part."""
        rows = cache.length + tokens.shape[-1]
        return tokens.numel() <= FEW and tokens.numel() * rows <= PAIRS and not any(self.hooks)

    def in_one_call(self, tokens: Tensor, cache: Any) -> np.ndarray:
        """Run ids (B, T) through all layers, (B, T, C); their rows are in the cache, and do not count yet."""
        B, T = tokens.shape
        x = self.embed_tokens.weight.detach().numpy()[tokens.numpy()]
        L = len(self.layers)  # a draft has the first few of the cache's layers
        if isinstance(cache, PagedCache):
            where = cache.page_table(), np.array(cache.lengths), np.array(cache.n_new(T))
        else:  # a page of max_len rows for each
            where = np.arange(B)[:, None], np.full(B, cache.length), np.full(B, T)
        kernels.layers_loop(
            x.reshape(B * T, -1),
            self.frequencies.numpy(),
            cache.k[:L].numpy(),
            cache.v[:L].numpy(),
            *where,
            self.eps,
            np.float32(self.config.head_dim**-0.5),
            self.norms,
            self.qkv,
            self.o,
            self.gate_up,
            self.down,
        )
        return x

    def _apply(self, *_: Any, **__: Any) -> Any:
        raise ValueError(
            "a fast twin is float32 on the CPU; expected no to(), half() or cuda(): change the model"
        )
