"""Layers that keep a state: two forms of one function, a cache that does not go back, a published model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.chapters import n23
from helpers.cost.layers import Full, State, cache_nbytes, layer_types_of
from helpers.model import generate as generating
from helpers.model import state as module
from helpers.model.cache import Cache, StateCache, StaticCache
from helpers.model.config import StateConfig
from helpers.model.generate import decode_step, generate
from helpers.model.load import load, save
from helpers.model.speculate import PromptLookup, speculate
from helpers.model.state import StateTransformer, chunk_step, recurrent_step
from tests.tiny import SIZES, enlarge, failing, in_passes, same, tiny, tokens

torch.set_num_threads(1)

LAYERS = [(0, 1, 2), (1, 2), (0, 2), (1,)]
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
every = pytest.mark.parametrize("layers", LAYERS, ids=str)


def tiny_state(layers: tuple[int, ...] = (1, 2), **changed: Any) -> StateTransformer:
    """A small model in float64 with large weights, and shares kept that differ much."""
    torch.manual_seed(0)
    model = StateTransformer(StateConfig(**(SIZES | changed), state_layers=layers)).double()
    enlarge(model)
    return model.requires_grad_(False)


MODELS = {layers: tiny_state(layers) for layers in LAYERS}


def parts(T: int, B: int = 2, H: int = 3, D: int = 4, Dv: int = 5) -> tuple[list[Tensor], Tensor, Tensor]:
    """Random q, k, v of T tokens, a state before them, and the share of it that each head keeps."""
    torch.manual_seed(T)
    qkv = [torch.randn(B, H, T, width).double() for width in (D, D, Dv)]
    return qkv, torch.randn(B, H, D, Dv).double(), torch.rand(H, 1, 1).double()


@pytest.mark.parametrize("T", [1, 2, 7, 40])
def test_chunk_equals_recurrent_steps(T: int) -> None:
    """Both equal the explicit sum: g to the power of the age, times q · k, times v."""
    qkv, state, g = parts(T)
    (contexts, after), last = chunk_step(state, g, *qkv), state
    q, k, v = qkv
    for t in range(T):
        context, last = recurrent_step(last, g, *(x[:, :, t, None] for x in qkv))
        same(contexts[:, :, t], context[:, :, 0])
        whole = g[..., 0] ** (t + 1) * (q[:, :, t, None] @ state)[:, :, 0]
        for j in range(t + 1):
            looked = (q[:, :, t] * k[:, :, j]).sum(-1, keepdim=True)
            whole = whole + g[..., 0] ** (t - j) * looked * v[:, :, j]
        same(contexts[:, :, t], whole)
    same(after, last)


splits = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@every
@given(split=splits, batch=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_cached_equals_uncached(layers: tuple[int, ...], split: list[int], batch: int, seed: int) -> None:
    model, split = MODELS[layers], [n for i, n in enumerate(split) if sum(split[: i + 1]) <= 40]
    ids, cache = tokens(batch, sum(split), seed), StateCache(MODELS[layers].config, batch, **DOUBLE)
    same(in_passes(model, ids, split, cache), model(ids))
    n, rows = sum(split), 3 - len(layers)
    assert (cache.length, cache.n_entries) == (n, n if rows else 0)
    # 6 heads of 8 × 8 numbers; rows of 3 heads of 8 and 8.
    assert cache.nbytes == batch * 8 * (len(layers) * 6 * 8 * 8 + rows * n * 3 * (8 + 8))
    assert cache.nbytes == batch * cache_nbytes(layer_types_of(model.config), n, 4) * 2


def test_pass_is_split_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = MODELS[0, 2], tokens(2, 23)
    expected = model(ids)
    for chunk in (1, 5, 23):
        monkeypatch.setattr(module, "CHUNK", chunk)
        same(model(ids), expected)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
def test_kv_head_serves_adjacent_query_heads(n_kv_heads: int) -> None:
    """As a model with a KV head for each, whose weights are those of the shared ones."""
    shared, each = (tiny_state((0, 1, 2), n_kv_heads=n) for n in (n_kv_heads, 6))
    weights = shared.state_dict()
    for name in [name for name in weights if "k_proj" in name or "v_proj" in name]:
        heads = weights[name].unflatten(0, (n_kv_heads, 8))
        weights[name] = heads.repeat_interleave(6 // n_kv_heads, 0).flatten(0, 1)
    each.load_state_dict(weights)
    same(shared(tokens(2, 9)), each(tokens(2, 9)))


def test_sizes() -> None:
    config: Any = MODELS[1, 2].config
    assert config.n_parameters == sum(p.numel() for p in MODELS[1, 2].parameters())
    assert config.cache_nbytes_per_token() == 3 * (8 + 8) * 4
    assert tiny_state((0, 1, 2)).config.cache_nbytes_per_token() == 0
    assert layer_types_of(config) == [Full(3, 8, 8), State(384), State(384)]
    shares = StateTransformer(config).get_parameter("layers.1.self_attn.decay").sigmoid().tolist()
    assert [round(share, 3) for share in (shares[0], shares[-1])] == [0.875, 0.998]


@pytest.mark.parametrize("layers", [(3,), (2, 1), (1, 1), (-1,), (True,)])
def test_invalid_state_layers_are_refused(layers: Any) -> None:
    with pytest.raises(ValueError, match=r"state_layers is .*; expected"):
        StateConfig(**SIZES, state_layers=layers)


def test_checkpoint_stores_state_layers(tmp_path: Any) -> None:
    model = MODELS[0, 2]
    save(model, tmp_path)
    loaded = load(tmp_path)
    assert loaded.config == model.config
    assert torch.equal(loaded(tokens(1, 9)), model(tokens(1, 9)))


# What a state cannot do.


@every
def test_state_truncates_to_zero_only(layers: tuple[int, ...]) -> None:
    """No row can be cut off: not in the layers that keep some either, or half of the cache would go back."""
    model, ids = MODELS[layers], tokens(1, 12)
    cache = StateCache(model.config, **DOUBLE)
    in_passes(model, ids[:, :11], [5, 6], cache)
    before, cache_rows = {n: s.clone() for n, s in cache.states.items()}, cache.n_entries
    for length in (10, 5, 1):
        with pytest.raises(ValueError, match=f"length is {length} of 11 tokens; .* layers keep a state"):
            cache.truncate(length)
    cache.truncate(11)
    assert all(torch.equal(cache.states[n], s) for n, s in before.items())
    assert (cache.length, cache.n_entries) == (11, cache_rows)
    same(in_passes(model, ids[:, 11:], [1], cache), model(ids)[:, 11:])
    cache.reset()
    same(in_passes(model, ids, [12], cache), model(ids))


@every
def test_state_snapshot_can_be_restored(layers: tuple[int, ...]) -> None:
    """Whatever has come since: a draft, another snapshot's text, a reset."""
    model, ids, other = MODELS[layers], tokens(2, 14), tokens(2, 9, seed=7)
    cache = StateCache(model.config, 2, **DOUBLE)
    in_passes(model, ids[:, :6], [4, 2], cache)
    there = cache.snapshot()
    assert (there.length, there.nbytes) == (6, 2 * len(layers) * 6 * 64 * 8)
    for act in (lambda: in_passes(model, other, [8, 1], cache), cache.reset, lambda: None):
        act()
        cache.restore(there)
        cache.advance(0)  # nothing is left of passes since
        assert (cache.length, cache.n_entries) == (6, 6 if len(layers) < 3 else 0)
        same(in_passes(model, ids[:, 6:], [1, 7], cache), model(ids)[:, 6:])


@every
def test_failed_pass_leaves_state_unchanged(layers: tuple[int, ...]) -> None:
    model, ids = MODELS[layers], tokens(2, 12)
    cache = StateCache(model.config, 2, **DOUBLE)
    first = in_passes(model, ids[:, :5], [5], cache)
    before = repr(cache), cache.change_count, dict(cache.states)
    with failing(model, "lm_head"), pytest.raises(KeyboardInterrupt):
        in_passes(model, ids[:, 5:8].flip(1), [3], cache)
    assert (repr(cache), cache.change_count, cache.states) == before
    same(torch.cat([first, in_passes(model, ids[:, 5:], [4, 3], cache)], 1), model(ids))


def test_failed_reply_rolls_back_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = MODELS[1, 2], StateCache(MODELS[1, 2].config, **DOUBLE)
    output_ids = list(generate(model, [1, 2, 3], 9, eos_ids=()))
    assert model(torch.tensor([[1, 2, 3, *output_ids[:-1]]]))[0, 2:].argmax(-1).tolist() == output_ids
    reply = generate(model, [1, 2, 3], 9, cache=cache, eos_ids=())
    assert next(reply) == output_ids[0]
    states = dict(cache.states)
    monkeypatch.setattr(generating, "to_numpy", lambda logits: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(reply)
    assert (cache.length, cache.states, cache.n_entries) == (3, states, 3)


def test_growing_cache_and_drafts_are_refused() -> None:
    model = MODELS[1, 2]
    with pytest.raises(ValueError, match=r"made for state_layers \(\), the pass has state_layers \(1, 2\)"):
        model(tokens(1, 3), StaticCache(model.config, **DOUBLE))
    with pytest.raises(ValueError, match=r"a StateCache cannot truncate"):
        speculate(model, [1, 2, 3], 4, PromptLookup(), cache=StateCache(model.config, **DOUBLE))


# A published model.


@pytest.mark.parametrize("split", [[11], [1, 10], [6, 1, 4]])
def test_equals_lightning_attention_of_minimax(split: list[int]) -> None:
    """The core of MiniMax-Text-01's linear layers in `transformers`, with random weights: contexts and state.

    Its projections differ, so their outputs are used as inputs here.
    """
    from transformers import MiniMaxConfig
    from transformers.models.minimax import modeling_minimax as theirs

    sizes: Any = {"hidden_size": 30, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8}
    config = MiniMaxConfig(**sizes, num_hidden_layers=2, block_size=4, layer_types=["linear_attention"] * 2)
    torch.manual_seed(0)
    layer = theirs.MiniMaxLightningAttention(config, 0).double().requires_grad_(False)
    seen: list[Tensor] = []
    layer.norm.register_forward_hook(lambda _, given, out: seen.append(given[0]))
    x, cache = torch.randn(2, 11, 30).double(), theirs.MiniMaxCache()
    for chunk in x.split(split, dim=1):
        layer(chunk, (x, x), None, cache)
    q, k, v = layer.act_fn(layer.qkv_proj(x)).unflatten(-1, (6, 24)).transpose(1, 2).split(8, dim=-1)
    contexts, state = chunk_step(torch.zeros(2, 6, 8, 8).double(), (-layer.slope_rate).exp(), q, k, v)
    # Its tables of decays are float32 numbers made double: 6e-8 of a context of 0.4.
    same(contexts.transpose(1, 2).flatten(2), torch.cat(seen, 1), bound=1e-7)
    same(state, cache.get_linear_cache(0), bound=1e-7)
    assert contexts.abs().max() > 0.1


def test_timed_steps_have_equal_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timing of notebook 23 removes its own token, which entries allow and states do not."""
    lengths: list[int] = []

    def watched(model: Any, tokens: Any, cache: Cache) -> Tensor:
        lengths.append(cache.length)
        return decode_step(model, tokens, cache)

    monkeypatch.setattr(n23, "decode_step", watched)
    for model in (tiny_state((0, 1, 2)).float(), tiny()):
        step = n23.make_decode_step_task(model, 40)
        step()
        step()
    assert lengths == [40] * 4
