"""The parts of the model against formulas written out: rotation, attention, norm, MLP, sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.model.attention import attend, rope_cos_sin, rope_frequencies
from helpers.model.config import LatentConfig, Llama3Scaling, ModelConfig, QKNormConfig
from helpers.model.latent import LatentTransformer
from helpers.model.model_classes import make_model
from tests.tiny import SCALING, SIZES, tiny, tiny_config

torch.set_num_threads(1)

B, T, S, H, D, Dv = 2, 3, 5, 6, 8, 4


def by_loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Contexts head by head and query by query; 0 where there is nothing to pick."""
    group = q.shape[1] // k.shape[1]
    mask = mask.expand(q.shape[0], 1, -1, -1)
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for b, h, t in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:3])).tolist():
        seen = [s for s in range(k.shape[2]) if mask[b, 0, t, s]]
        exps = [math.exp(float(q[b, h, t] @ k[b, h // group, s]) * scale) for s in seen]
        for s, e in zip(seen, exps, strict=True):
            out[b, h, t] += e / sum(exps) * v[b, h // group, s]
    return out


def causal(n_new: int, n_all: int) -> Tensor:
    return torch.arange(n_all) <= torch.arange(n_all - n_new, n_all)[:, None]


def qkv(Hkv: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((B, H, T, D), (B, Hkv, S, D), (B, Hkv, S, Dv))
    return tuple(torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)  # type: ignore[return-value]


@pytest.mark.parametrize("Hkv", [1, 2, 6])
def test_attend(Hkv: int) -> None:
    """One mask for all sequences, and one for each, (B, 1, T, S)."""
    for mask in (causal(T, S), torch.stack([causal(T, S), causal(T, S).roll(2, dims=1)])[:, None]):
        got = attend(*qkv(Hkv), mask, 0.7)
        assert got.shape == (B, H, T, Dv)
        torch.testing.assert_close(got, by_loops(*qkv(Hkv), mask, 0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_fully_masked_row_gives_zero(dtype: torch.dtype) -> None:
    """Not NaN, as a plain softmax would, and not the average of all keys."""
    q, k, v = (x.to(dtype) for x in qkv(2))
    mask = causal(T, S)
    mask[1] = False
    got = attend(q, k, v, mask, 0.7)
    assert (got[:, :, 1] == 0).all()
    assert (got[:, :, [0, 2]].abs().sum(-1) > 0).all()


def test_llama3_scaling_keeps_high_frequencies() -> None:
    """Pairs that are slowed down and blended: test_model_equal."""
    fast = Llama3Scaling(factor=8.0, low_freq_factor=0.1, high_freq_factor=0.2, original_max_seq_len=16)
    assert rope_frequencies(tiny_config(rope_scaling=fast))[0] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_rope_angles_stay_float32_in_bfloat16_models(dtype: torch.dtype) -> None:
    """bfloat16 has 8 bits for a number: from 256 on it cannot tell a position from the next."""
    model = tiny().to(dtype)
    assert torch.equal(model.frequencies, rope_frequencies(model.config))
    cos, sin = rope_cos_sin(torch.tensor([300, 301]), model.frequencies, dtype)
    assert cos.dtype == sin.dtype == dtype
    for got, exact in ((cos, math.cos(301.0)), (sin, math.sin(301.0))):
        assert got.shape == (1, 2, 8)
        assert abs(float(got[0, 1, 0]) - exact) <= 2 * torch.finfo(dtype).eps + 1e-4


@pytest.mark.parametrize(
    "changed", [{"tied": True}, {"qkv_bias": True, "n_kv_heads": 1}, {"kind": QKNormConfig}]
)
def test_n_parameters_matches_the_model(changed: dict[str, Any]) -> None:
    config = tiny_config(**changed)
    assert config.n_parameters == sum(p.numel() for p in make_model(config).parameters())


WIDE: dict[str, Any] = SIZES | {"vocab_size": 190, "hidden_size": 300}
LATENT = LatentConfig(**(WIDE | {"n_kv_heads": 1}), rank=100, rope_dim=40)


@pytest.mark.parametrize("config", [ModelConfig(**WIDE, qkv_bias=True), LATENT], ids=["", "latent"])
def test_initial_weights_are_small(config: ModelConfig) -> None:
    torch.manual_seed(3)
    model = make_model(config)
    assert isinstance(model, LatentTransformer) == (config is LATENT)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif parameter.ndim > 1:  # 5,000 numbers and more: 5 standard errors of their spread are 0.001
            assert float(parameter.detach().std()) == pytest.approx(0.02, abs=0.001), name
            assert abs(float(parameter.detach().mean())) < 0.001, name
    assert model.norm.weight.eq(1).all()


def test_cache_nbytes_per_token() -> None:
    assert tiny_config().cache_nbytes_per_token() == 2 * 3 * 3 * 8 * 4
    assert tiny_config(n_kv_heads=1).cache_nbytes_per_token(2) == 2 * 3 * 1 * 8 * 2
    numpy_s = tiny_config(ModelConfig, **{name: np.int64(size) for name, size in SIZES.items()}, rope_theta=1)
    assert {type(getattr(numpy_s, name)) for name in SIZES} == {int}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *(({name: 0}, f"{name} is 0; expected a whole number, 1 or more") for name in SIZES),
        ({"n_kv_heads": 4}, "n_heads is 6, n_kv_heads 4; expected a multiple"),
        ({"head_dim": 7}, "head_dim is 7; expected an even number"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0; expected a number over 0"),
        ({"rope_theta": 1e39}, "rope_theta is 1e[+]39; expected a number over 0 that fits into float32"),
        ({"eos_ids": (19,)}, "eos id 19 is out of range; expected 0 to 18"),
        ({"factor": 0.0}, "rope_scaling.factor is 0.0; expected a number over 0"),
        (
            {"low_freq_factor": 4.0},
            "rope_scaling.low_freq_factor is 4.0; expected less than high_freq_factor",
        ),
        ({"original_max_seq_len": -1}, "rope_scaling.original_max_seq_len is -1; expected a number over 0"),
    ],
)
def test_sizes_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Llama3Scaling(**vars(SCALING) | changed) if changed.keys() <= vars(SCALING).keys() else tiny_config(
            **changed
        )


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.int64), r"shape \(1, 0\); expected \(B, T\), at least one token"),
        (torch.zeros(3, dtype=torch.int64), r"shape \(3,\); expected \(B, T\)"),
        (torch.zeros(1, 3), "tokens are torch.float32; expected a tensor of whole numbers"),
        ([[1, 2]], "tokens are list; expected a tensor"),
        (torch.tensor([[3, 19]]), "token id 19 is out of range; expected 0 to 18"),
        (torch.tensor([[-7, 3]]), "token id -7 is out of range"),
        (torch.ones(1, 41, dtype=torch.int64), "41 new tokens after 0 make 41; expected at most 40"),
    ],
)
def test_invalid_tokens_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny()(ids)
