"""Compiled loops that compute the layers of a model on a CPU.

Numba compiles each loop for this machine's processor when the loop first runs. Loops over `prange` are split
over the CPU cores. A loop that computes the same as a function or module of the package has its name, with
`_loop` added.

A matrix is stored as float32, as the bits of float16 (viewed as uint16), or as int8 with one scale per row.
Only this stored form is read from memory: each weight is converted to float32 in a register when it is used.
Sums are computed in float32 in another order than PyTorch's, so their last digits differ.

Entries of a cache are stored in pages of R slots: one layer's keys have shape (P, Hkv, R, D). `tables`, of
shape (B, …), has the page indices of each sequence, in order. A static cache is treated as one long page per
sequence.

In shapes, B is the number of sequences and T the number of columns per sequence; N is B · T. C and F are
widths of vectors. H is the number of query heads, Hkv the number of KV heads, and D the width of a head. The
new tokens of a sequence are in its last columns. The columns before them are padding, for which no entry is
stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

Array = np.ndarray
FourDots = tuple[np.float32, np.float32, np.float32, np.float32]
Matrices = tuple[Array, Array, Array]  # of one product in every layer: (L, F, C), scales and biases (L, F)

SERIAL: Any = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy", "cache": True}
PARALLEL: Any = SERIAL | {"parallel": True}


def convert_to_float32(context: Any, number: Any) -> tuple[Any, Any]:
    """Generate code that converts a number to float32. A uint16 is interpreted as the bits of a float16."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] == types.uint16:
            return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())
        return context.cast(builder, args[0], signature.args[0], types.float32)

    return types.float32(number), code


to_float32: Any = intrinsic(convert_to_float32)


@njit(**SERIAL)
def dot_one_by_four(x: Array, a: Array, b: Array, c: Array, d: Array) -> FourDots:
    """Return the dot products of a vector x with four rows a, b, c, d of a matrix, all of shape (C,)."""
    xa = xb = xc = xd = np.float32(0)
    for i in range(x.shape[0]):
        xa += to_float32(a[i]) * x[i]
        xb += to_float32(b[i]) * x[i]
        xc += to_float32(c[i]) * x[i]
        xd += to_float32(d[i]) * x[i]
    return xa, xb, xc, xd


@njit(**SERIAL)
def dot_two_by_four(x: Array, y: Array, a: Array, b: Array, c: Array, d: Array) -> tuple[FourDots, FourDots]:
    """Return the dot products of two vectors x, y with four rows a, b, c, d of a matrix, all of shape (C,).

    Each row of the matrix is read only once. The result has the four products with x, then those with y.
    """
    xa = xb = xc = xd = ya = yb = yc = yd = np.float32(0)
    for i in range(x.shape[0]):
        ai, bi, ci, di = to_float32(a[i]), to_float32(b[i]), to_float32(c[i]), to_float32(d[i])
        xa += ai * x[i]
        xb += bi * x[i]
        xc += ci * x[i]
        xd += di * x[i]
        ya += ai * y[i]
        yb += bi * y[i]
        yc += ci * y[i]
        yd += di * y[i]
    return (xa, xb, xc, xd), (ya, yb, yc, yd)


@njit(**PARALLEL)
def linear_loop(x: Array, matrix: Array, scale: Array, bias: Array, out: Array) -> None:
    """Multiply x by a matrix with scaled rows, add the bias, and store the result in out.

    x has shape (N, C), matrix (F, C), and out (N, F). Four distant rows of the matrix are read at a time,
    because memory delivers four streams faster than one.
    """
    N, F = out.shape
    quarter = (F + 3) // 4
    for row in prange(quarter):
        rows = (row, min(row + quarter, F - 1), min(row + 2 * quarter, F - 1), min(row + 3 * quarter, F - 1))
        a, b, c, d = matrix[rows[0]], matrix[rows[1]], matrix[rows[2]], matrix[rows[3]]
        for n in range(0, N - 1, 2):
            first, second = dot_two_by_four(x[n], x[n + 1], a, b, c, d)
            store_four(first, rows, scale, bias, out[n])
            store_four(second, rows, scale, bias, out[n + 1])
        if N % 2:
            store_four(dot_one_by_four(x[N - 1], a, b, c, d), rows, scale, bias, out[N - 1])


@njit(**SERIAL)
def store_four(
    dots: FourDots, rows: tuple[int, int, int, int], scale: Array, bias: Array, out: Array
) -> None:
    """Scale four dot products, add the biases, and store them in out, (F,), at the matrix's rows."""
    out[rows[0]] = dots[0] * scale[rows[0]] + bias[rows[0]]
    out[rows[1]] = dots[1] * scale[rows[1]] + bias[rows[1]]
    out[rows[2]] = dots[2] * scale[rows[2]] + bias[rows[2]]
    out[rows[3]] = dots[3] * scale[rows[3]] + bias[rows[3]]


@njit(**PARALLEL)
def gated_linear_loop(x: Array, matrix: Array, scale: Array, out: Array) -> None:
    """Compute silu(gate(x)) · up(x) for each row of x, and store the result in out.

    x has shape (N, C), out (N, F). The matrix, (2F, C), has the F rows of gate, then the F rows of up. Each
    row has its own scale.
    """
    N, F = out.shape
    half = (F + 1) // 2
    for row in prange(half):
        other = min(row + half, F - 1)
        a, b, c, d = matrix[row], matrix[other], matrix[F + row], matrix[F + other]
        for n in range(0, N - 1, 2):
            first, second = dot_two_by_four(x[n], x[n + 1], a, b, c, d)
            store_gated(first, row, other, scale, out[n])
            store_gated(second, row, other, scale, out[n + 1])
        if N % 2:
            store_gated(dot_one_by_four(x[N - 1], a, b, c, d), row, other, scale, out[N - 1])


@njit(**SERIAL)
def store_gated(dots: FourDots, row: int, other: int, scale: Array, out: Array) -> None:
    """Store in out, (F,), the gated products of two rows: `dots` has two of gate, then two of up."""
    F = out.shape[0]
    out[row] = silu(dots[0] * scale[row]) * dots[2] * scale[F + row]
    out[other] = silu(dots[1] * scale[other]) * dots[3] * scale[F + other]


@njit(**SERIAL)
def silu(x: Any) -> Any:
    """Return x / (1 + exp(-x))."""
    return x / (np.float32(1) + np.exp(-x))


@njit(**SERIAL)
def norm_loop(x: Array, weight: Array, eps: np.float32, out: Array) -> None:
    """Compute the RMS norm of each row of x, and store it in out. Both have shape (N, C)."""
    N, C = x.shape
    for n in range(N):
        total = np.float32(0)
        for i in range(C):
            total += x[n, i] * x[n, i]
        factor = np.float32(1) / np.sqrt(total / np.float32(C) + eps)
        for i in range(C):
            out[n, i] = weight[i] * (x[n, i] * factor)


@njit(**SERIAL)
def rope_cos_sin_loop(position: int, frequencies: Array, cos: Array, sin: Array) -> None:
    """Compute the cosine and sine of each channel pair's angle at a position; store them in cos and sin.

    `frequencies` are in radians per position. All three arrays have shape (D / 2,).
    """
    for i in range(frequencies.shape[0]):
        angle = np.float32(position) * frequencies[i]
        cos[i], sin[i] = np.cos(angle), np.sin(angle)


@njit(**SERIAL)
def rotate_loop(x: Array, cos: Array, sin: Array, out: Array) -> None:
    """Rotate each pair of channels (i, i + D / 2) in one head's vector x; store the result in out.

    x and out have shape (D,).
    """
    half = x.shape[0] // 2
    for i in range(half):
        out[i] = x[i] * cos[i] - x[half + i] * sin[i]
        out[half + i] = x[half + i] * cos[i] + x[i] * sin[i]


@njit(**SERIAL)
def locate_token(n: int, T: int, lengths: Array, new: Array) -> tuple[int, int]:
    """Return the index b of the sequence that has token n, and the token's position in that sequence.

    n counts the columns of all sequences, from 0 to B · T - 1. The position is -1 if the token is padding.
    For each sequence, `lengths` has the number of entries stored so far, and `new` the number of new tokens;
    both have shape (B,).
    """
    b = n // T
    column = n % T - (T - new[b])
    return b, lengths[b] + column if column >= 0 else -1


@njit(**PARALLEL)
def attend_loop(
    q: Array, k: Array, v: Array, tables: Array, lengths: Array, new: Array, scale: np.float32, out: Array
) -> None:
    """Let each new token attend to the entries of its sequence up to its own position, in one layer.

    The queries q have shape (N, H, D). The contexts are stored in out, of the same shape, with 0 for padding.
    """
    N, H, D = q.shape
    Hkv, R = k.shape[1:3]
    T = N // tables.shape[0]
    for job in prange(N * H):
        n, h = job // H, job % H
        kv = h * Hkv // H
        b, position = locate_token(n, T, lengths, new)
        weights = np.empty(position + 1, np.float32)
        top = np.float32(-np.inf)
        for start in range(0, position + 1, R):
            keys = k[tables[b, start // R], kv]
            for s in range(min(R, position + 1 - start)):
                score = np.float32(0)
                for i in range(D):
                    score += q[n, h, i] * keys[s, i]
                weights[start + s] = score * scale
                top = max(top, weights[start + s])
        total = np.float32(0)
        for s in range(position + 1):
            weights[s] = np.exp(weights[s] - top)
            total += weights[s]
        out[n, h] = 0
        for start in range(0, position + 1, R):
            values = v[tables[b, start // R], kv]
            for s in range(min(R, position + 1 - start)):
                for i in range(D):
                    out[n, h, i] += weights[start + s] * values[s, i]
        for i in range(D if position >= 0 else 0):
            out[n, h, i] /= total


@njit(**SERIAL)
def layers_loop(
    x: Array,
    frequencies: Array,
    k: Array,
    v: Array,
    tables: Array,
    lengths: Array,
    new: Array,
    eps: np.float32,
    scale: np.float32,
    norms: Array,
    qkv: Matrices,
    o: Matrices,
    gate_up: Matrices,
    down: Matrices,
) -> None:
    """Run all layers on the residual stream x, in place, and store the new entries in the pages.

    Args:
        x: embeddings of the tokens, of shape (N, C); afterwards, the input of the final norm.
        frequencies: RoPE frequencies, in radians per position, of shape (D / 2,).
        k, v: pages of keys, and pages of values, both of shape (L, P, Hkv, R, D).
        tables: page indices of each sequence, of shape (B, …).
        lengths, new: as in `locate_token`.
        eps: constant that each norm adds to the mean square.
        scale: factor by which attention scores are multiplied.
        norms: weights of the norms before attention and before the MLP, of shape (L, 2, C).
        qkv, o, gate_up, down: matrices of each layer's four products. q, k and v are concatenated, and so are
            gate and up.
    """
    L, _, Hkv, R, D = k.shape
    N, C = x.shape
    T, H = N // tables.shape[0], o[0].shape[2] // D
    normed, added = np.empty((N, C), np.float32), np.empty((N, C), np.float32)
    rows, inner = np.empty((N, qkv[0].shape[1]), np.float32), np.empty((N, down[0].shape[2]), np.float32)
    q, contexts = np.empty((N, H, D), np.float32), np.empty((N, H, D), np.float32)
    cos, sin = np.empty((N, D // 2), np.float32), np.empty((N, D // 2), np.float32)
    for n in range(N):
        rope_cos_sin_loop(locate_token(n, T, lengths, new)[1], frequencies, cos[n], sin[n])
    for layer in range(L):
        norm_loop(x, norms[layer, 0], eps, normed)
        linear_loop(normed, qkv[0][layer], qkv[1][layer], qkv[2][layer], rows)
        for n in range(N):
            heads = rows[n].reshape(-1, D)
            for h in range(H):
                rotate_loop(heads[h], cos[n], sin[n], q[n, h])
            b, position = locate_token(n, T, lengths, new)
            for h in range(Hkv if position >= 0 else 0):
                page, row = tables[b, position // R], position % R
                rotate_loop(heads[H + h], cos[n], sin[n], k[layer, page, h, row])
                v[layer, page, h, row] = heads[H + Hkv + h]
        attend_loop(q, k[layer], v[layer], tables, lengths, new, scale, contexts)
        linear_loop(contexts.reshape(N, -1), o[0][layer], o[1][layer], o[2][layer], added)
        x += added
        norm_loop(x, norms[layer, 1], eps, normed)
        gated_linear_loop(normed, gate_up[0][layer], gate_up[1][layer], inner)
        linear_loop(inner, down[0][layer], down[1][layer], down[2][layer], added)
        x += added
