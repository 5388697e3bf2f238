"""An opt-in, faster twin of a model; the original is left unchanged.

A decode step reads every weight once and launches some 20 operators per layer. The twin stores its weights in
float32, float16 or int8, so that fewer bytes are read. It runs all layers in a single compiled call (see
`kernels`), so that no operators are launched in between, and splits each matrix over the CPU cores.

The single call runs passes of up to 32 tokens with a static or paged cache, as long as the number of tokens
times the number of entries does not exceed 2**14. For all other passes, the ordinary modules run, with each
linear layer replaced by a `NarrowLinear`. If any module of the twin has a hook, the ordinary modules run
instead of the single call. Cache entries stay in float32.
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
MAX_TOKENS = 32  # maximum number of tokens in a pass for which the compiled product is faster than MKL
MAX_PAIRS = 2**14  # maximum of tokens times entries for which compiled attention is faster than PyTorch's
WEIGHTS_PER_THREAD = 2**14  # with fewer weights of a product, another thread costs more time than it saves
PAGED_CLASSES = (StaticCache, PagedCache)  # caches that store entries in pages (L, P, Hkv, R, D)


def speed_up(model: Transformer, *, bits: int = 32, threads: int | None = None) -> FastTransformer:
    """Return a faster twin of a model for inference on a CPU.

    The gain is largest for passes of up to 32 tokens, over all sequences.

    Args:
        model: a `Transformer` in float32 on the CPU. It is not changed; the twin shares its embedding and
            final norm, and copies the other weights.
        bits: bits per stored weight. With 32, logits change only by rounding errors. With 16, each weight is
            rounded to float16, by at most one part in 2,048 (more for tiny weights). With 8, each weight is
            rounded to one of 255 levels per row, which is lossy. Computation is always in float32.
        threads: number of threads among which each matrix is divided. None uses the number of PyTorch's
            threads, reduced if necessary so that each thread has at least 2**14 weights of an average matrix;
            with fewer, starting a thread takes longer than its work.

    Raises:
        ValueError: bits or threads is out of range; the model is not a plain `Transformer` in float32 on the
            CPU; or a weight is NaN or too large for the number of bits.
    """
    if bits not in BITS:
        raise ValueError(f"bits is {bits!r}; expected 32, 16 or 8")
    max_threads = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if not (threads is None or (is_whole(threads) and 1 <= threads <= max_threads)):
        raise ValueError(f"threads is {threads!r}; expected 1 to {max_threads}")
    check_plain(model)
    torch_threads = torch.get_num_threads()
    if threads is None:
        threads = min(max_threads, torch_threads, max(1, weights_per_product(model) // WEIGHTS_PER_THREAD))
    numba.set_num_threads(1)  # the first call starts Numba's threads, and sets PyTorch's number as well
    torch.set_num_threads(torch_threads)
    twin = FastTransformer(model, bits)
    # All kernels are compiled now, or read from Numba's cache, by one process at a time: if two processes
    # write that cache at once, code of one may be stored under the types of the other, and the next process
    # crashes: https://github.com/numba/numba/issues/4807.
    with FileLock(Path(kernels.linear_loop.stats.cache_path) / "kernels.lock"), torch.inference_mode():
        twin(torch.zeros(1, 1, dtype=torch.int64), StaticCache(twin.config, max_len=1))
    twin.threads = threads
    return twin


def weights_per_product(model: Transformer) -> int:
    """Return the average number of weights in the four matrices that `stack_linears` makes per layer."""
    layers = [part.weight.numel() for part in model.layers.modules() if isinstance(part, nn.Linear)]
    return sum(layers) // (4 * len(model.layers))


def check_plain(model: Transformer) -> None:
    """Raise ValueError unless the model is a plain `Transformer` in float32 on the CPU."""
    if type(model) is not Transformer:
        raise ValueError(f"the model is of type {type(model).__name__}; expected a plain Transformer")
    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32 or not weight.is_cpu:
            raise ValueError(
                f"{name} is {weight.dtype} on {weight.device}; expected float32 on the CPU: load the model "
                "with dtype=torch.float32"
            )


def quantize_weight(weight: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Convert a matrix to `bits` bits per weight, in the form that `kernels` reads.

    Args:
        weight: matrix in float32, of shape (F, C).
        bits: 32, 16 or 8.

    Returns:
        The converted matrix, of shape (F, C), and one scale per row, of shape (F,). Each row has to be
        multiplied by its scale.

    Raises:
        ValueError: a weight is NaN or too large for the number of bits.
    """
    largest = np.abs(weight).max()
    if not largest <= np.finfo(np.float16 if bits == 16 else np.float32).max:  # NaN, too
        raise ValueError(f"the largest weight is {largest:g}; expected a number that fits into {bits} bits")
    ones = np.ones(len(weight), np.float32)
    if bits == 32:
        return weight, ones
    if bits == 16:
        return weight.astype(np.float16).view(np.uint16), ones
    scale = np.abs(weight).max(axis=1) / np.float32(127)
    levels = weight / np.where(scale > 0, scale, 1)[:, None]
    return np.rint(levels).astype(np.int8), scale


class NarrowLinear(nn.Module):
    """A linear layer whose matrix may be stored in fewer than 32 bits per weight.

    Its input has shape (…, C), its output (…, F).

    Args:
        matrix: the matrix, of shape (F, C), as `quantize_weight` returns it.
        scale: scale of each row of the matrix, of shape (F,).
        bias: the bias, of shape (F,).
    """

    def __init__(self, matrix: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.matrix, self.scale, self.bias = matrix, scale, bias

    def forward(self, x: Tensor) -> Tensor:
        rows = np.ascontiguousarray(x.detach().reshape(-1, x.shape[-1]).numpy())
        multiply = self.multiply_with_kernel if len(rows) <= MAX_TOKENS else self.multiply_with_torch
        return multiply(rows).view(*x.shape[:-1], -1)

    def multiply_with_kernel(self, rows: np.ndarray) -> Tensor:
        """Return the layer's outputs for the rows, computed by the compiled loop.

        The rows have shape (N, C), the outputs (N, F).
        """
        out = np.empty((len(rows), len(self.matrix)), np.float32)
        kernels.linear_loop(rows, self.matrix, self.scale, self.bias, out)
        return torch.from_numpy(out)

    def multiply_with_torch(self, rows: np.ndarray) -> Tensor:
        """Return the layer's outputs for the rows, computed by PyTorch.

        The rows have shape (N, C), the outputs (N, F). The matrix is first converted to float32, also by
        PyTorch. If Numba's threads did this, they and PyTorch's threads would wait for each other in busy
        loops. The product is computed by oneDNN if available, which on AMD processors is twice as fast as the
        default, MKL.
        """
        matrix = self.matrix.view(np.float16) if self.matrix.dtype == np.uint16 else self.matrix
        x, weight, scale, bias = map(torch.from_numpy, (rows, matrix, self.scale, self.bias))
        if torch.backends.mkldnn.is_available():
            x = x.to_mkldnn()
        return torch.addcmul(bias, F.linear(x, weight.float()).to_dense(), scale)


def stack_linears(layers: Iterable[Sequence[nn.Linear]], bits: int) -> kernels.Matrices:
    """Merge several linear layers per model layer into one matrix, and stack these over the model layers.

    Args:
        layers: for each layer of the model, the linear layers to merge, such as those for q, k and v.
        bits: bits per stored weight.

    Returns:
        Matrices of shape (L, F, C), scales of shape (L, F), and biases of shape (L, F).
    """
    matrices, scales, biases = [], [], []
    for linears in layers:
        matrix, scale = quantize_weight(np.concatenate([x.weight.detach().numpy() for x in linears]), bits)
        bias = [torch.zeros(x.out_features) if x.bias is None else x.bias.detach() for x in linears]
        matrices.append(matrix)
        scales.append(scale)
        biases.append(torch.cat(bias).numpy())
    return np.stack(matrices), np.stack(scales), np.stack(biases)


def unstack_linears(
    matrices: kernels.Matrices, layer: int, originals: Sequence[nn.Linear]
) -> list[NarrowLinear]:
    """Return the linear layers that `stack_linears` merged, as views of the stacked matrices.

    Args:
        matrices: the result of `stack_linears`.
        layer: index of the layer of the model, from 0.
        originals: the linear layers that were merged, in the same order.
    """
    ends = np.cumsum([linear.out_features for linear in originals])
    return [
        NarrowLinear(*(part[layer, end - linear.out_features : end] for part in matrices))
        for end, linear in zip(ends, originals, strict=True)
    ]


class FastTransformer(Transformer):
    """The faster twin of a model, as `speed_up` returns it.

    It is used like a `Transformer`, but cannot be trained, saved, or moved to another device or dtype.

    Attributes:
        bits: bits per stored weight.
        threads: number of threads among which each matrix is divided.
    """

    def __init__(self, model: Transformer, bits: int) -> None:
        nn.Module.__init__(self)  # without initial weights
        self.config, self.frequencies = model.config, model.frequencies
        self.embed_tokens, self.norm = model.embed_tokens, model.norm
        self.bits, self.threads = bits, 1
        blocks: list[Any] = list(model.layers)
        attention, mlp = [b.self_attn for b in blocks], [b.mlp for b in blocks]
        self.qkv = stack_linears(((a.q_proj, a.k_proj, a.v_proj) for a in attention), bits)
        self.o = stack_linears(((a.o_proj,) for a in attention), bits)
        self.gate_up = stack_linears(((m.gate_proj, m.up_proj) for m in mlp), bits)
        self.down = stack_linears(((m.down_proj,) for m in mlp), bits)
        norms = [(b.input_layernorm.weight, b.post_attention_layernorm.weight) for b in blocks]
        self.norms = np.stack([[weight.detach().numpy() for weight in pair] for pair in norms])
        self.last_norm, self.eps = model.norm.weight.detach().numpy(), np.float32(model.norm.eps)
        self.layers = nn.ModuleList(self.make_block(layer, block) for layer, block in enumerate(blocks))
        self.lm_head: Any = NarrowLinear(*(part[0] for part in stack_linears([[model.lm_head]], bits)))
        parts = [*self.modules()][1:]
        self.hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]

    def make_block(self, layer: int, original: Any) -> Block:
        """Return a layer of ordinary modules whose linear layers are views of the stacked matrices.

        Args:
            layer: index of the layer, from 0.
            original: the corresponding layer of the original model. Its norms are copied.
        """
        with torch.device("meta"):  # shapes without memory
            block: Any = Block(self.config, layer)
        block.input_layernorm = deepcopy(original.input_layernorm)
        block.post_attention_layernorm = deepcopy(original.post_attention_layernorm)
        attention, mlp, old = block.self_attn, block.mlp, original.self_attn
        attention.q_proj, attention.k_proj, attention.v_proj = unstack_linears(
            self.qkv, layer, (old.q_proj, old.k_proj, old.v_proj)
        )
        (attention.o_proj,) = unstack_linears(self.o, layer, (old.o_proj,))
        mlp.gate_proj, mlp.up_proj = unstack_linears(
            self.gate_up, layer, (original.mlp.gate_proj, original.mlp.up_proj)
        )
        (mlp.down_proj,) = unstack_linears(self.down, layer, (original.mlp.down_proj,))
        return block

    def forward(self, tokens: Tensor, cache: Cache | None = None, *, last_only: bool = False) -> Tensor:
        """Run new tokens through every layer.

        Arguments, result and errors are those of `Transformer.forward`.
        """
        if numba.get_num_threads() != self.threads:
            numba.set_num_threads(self.threads)
        if cache is None or type(cache) not in PAGED_CLASSES or not self.can_run_in_one_call(tokens, cache):
            with torch.no_grad():
                return super().forward(tokens, cache, last_only=last_only)
        check_tokens(tokens, self.config.vocab_size)
        check_cache(cache, self, len(tokens))
        cache.check_capacity(tokens.shape[1])  # otherwise, compiled loops would write past its end
        x = self.run_in_one_call(tokens, cache)  # (B, T, C)
        x = np.ascontiguousarray(x[:, -1:] if last_only else x)
        normed = np.empty((x.shape[0] * x.shape[1], x.shape[2]), np.float32)
        kernels.norm_loop(x.reshape(normed.shape), self.last_norm, self.eps, normed)
        logits = self.lm_head.multiply_with_kernel(normed).view(*x.shape[:2], -1)
        cache.advance(tokens.shape[1])
        return logits

    def can_run_in_one_call(self, tokens: Tensor, cache: Any) -> bool:
        """Return whether the pass is small enough for the single call, and no module has a hook."""
        n, n_entries = tokens.numel(), cache.length + tokens.shape[-1]
        return n <= MAX_TOKENS and n * n_entries <= MAX_PAIRS and not any(self.hooks)

    def run_in_one_call(self, tokens: Tensor, cache: Any) -> np.ndarray:
        """Run token ids through all layers in a single call. Return the input of the final norm.

        The ids have shape (B, T), the result (B, T, C). The new entries are written to the cache, but take
        effect only with `cache.advance`.
        """
        B, T = tokens.shape
        x = self.embed_tokens.weight.detach().numpy()[tokens.numpy()]
        L = len(self.layers)  # a draft model has the first few of the cache's layers
        if isinstance(cache, PagedCache):
            layout = cache.page_table(), np.array(cache.lengths), np.array(cache.n_new_tokens(T))
        else:  # one page of max_len slots for each sequence
            layout = np.arange(B)[:, None], np.full(B, cache.length), np.full(B, T)
        kernels.layers_loop(
            x.reshape(B * T, -1),
            self.frequencies.numpy(),
            cache.k[:L].numpy(),
            cache.v[:L].numpy(),
            *layout,
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
