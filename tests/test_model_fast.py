"""The fast twin says what its model says: to rounding in 32 bits, as one of rounded weights in fewer."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers.model import fast
from helpers.model.cache import GrowingCache, PagedCache, PagePool, StaticCache
from helpers.model.config import QKNormConfig
from helpers.model.fast import speed_up
from helpers.model.speculate import first_layers
from helpers.model.transformer import Transformer
from tests.doubles import KINDS as KINDS_OF_CACHE
from tests.tiny import SCALING, in_passes, tiny, tokens

ROOT = Path(__file__).resolve().parents[1]
# Logits up to 30, sums of up to 50 float32 numbers in another order, three layers deep.
BOUND: Any = {"atol": 2e-4, "rtol": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "GQA": {},
    "MHA, biases": {"n_kv_heads": 6, "qkv_bias": True},
    "MQA, tied, scaled": {"n_kv_heads": 1, "tied": True, "rope_scaling": SCALING},
    "odd widths": {"hidden_size": 29, "intermediate_size": 21, "vocab_size": 19, "head_dim": 6},
}


def rounded(weight: Tensor, bits: int) -> Tensor:
    """A matrix (F, C) rounded to a number of bits, by PyTorch."""
    if bits == 32:
        return weight
    if bits == 16:
        return weight.half().float()
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / scale).round() * scale


def with_rounded_weights(model: Transformer, bits: int) -> Transformer:
    """The plain model with all matrices rounded, except the embedding."""
    model = deepcopy(model)
    if model.config.tied:
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(rounded(module.weight, bits))
    return model


@pytest.mark.parametrize(
    ("bits", "kind"), [(16, "GQA"), *((bits, kind) for kind in KINDS for bits in (32, 8))]
)
def test_twin_has_the_same_logits(bits: int, kind: str) -> None:
    """In one call, and by the modules: for over MAX_TOKENS tokens, and for another cache class."""
    model = tiny(**KINDS[kind])
    twin, plain = speed_up(model, bits=bits), with_rounded_weights(model, bits)
    ids = tokens(2, 40)
    expected = in_passes(plain, ids, [40], GrowingCache(plain.config, 2))
    for split, make in (([9, 1, 2, 16, 12], StaticCache), ([38, 1, 1], StaticCache), ([9, 31], GrowingCache)):
        cache = make(model.config, 2)
        torch.testing.assert_close(in_passes(twin, ids, split, cache), expected, **BOUND)
        assert cache.length == 40


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 16), min_size=1, max_size=8).filter(lambda split: sum(split) <= 40))
def test_twin_accepts_any_split_into_passes(split: list[int]) -> None:
    """Unused rows are not read."""
    ids, cache = tokens(2, sum(split)), StaticCache(MODEL.config, 2)
    cache.k.fill_(1e9)
    cache.v.fill_(torch.nan)
    right = in_passes(MODEL, ids, [sum(split)], GrowingCache(MODEL.config, 2))
    torch.testing.assert_close(in_passes(TWIN, ids, split, cache), right, **BOUND)


MODEL = tiny()
TWIN = speed_up(MODEL)


def test_twin_stores_the_same_entries() -> None:
    """One goes on where the other stopped, on the same cache."""
    ids, plain, mixed = tokens(1, 12), StaticCache(MODEL.config), StaticCache(MODEL.config)
    right = in_passes(MODEL, ids, [12], plain)
    for start, model in ((0, MODEL), (5, TWIN), (6, MODEL), (9, TWIN)):
        stop = {0: 5, 5: 6, 6: 9, 9: 12}[start]
        logits = in_passes(model, ids[:, start:stop], [stop - start], mixed)
        torch.testing.assert_close(logits, right[:, start:stop], **BOUND)
    for mine, theirs in ((mixed.k, plain.k), (mixed.v, plain.v)):
        torch.testing.assert_close(mine, theirs, **BOUND)  # unused rows among them: still 0


@pytest.mark.parametrize("split", [[(5, 2, 0), (1, 1, 4), (1, 1, 1), (0, 7, 2)], [(14, 3, 1), (1, 1, 1)]])
def test_twin_runs_unequal_lengths_in_shuffled_pages(split: list[tuple[int, int, int]]) -> None:
    """With padding on the left; unused pages and slots are poisoned."""
    ids = tokens(3, 15)
    right = in_passes(MODEL, ids, [15], GrowingCache(MODEL.config, 3))
    pool = PagePool(MODEL.config, 20, page_size=3)
    tables = torch.arange(15).flip(0).view(5, 3).T.tolist()
    for cache in (PagedCache(MODEL.config, 3, pool=pool, tables=tables), PagedCache(MODEL.config, 3, 15)):
        cache.k.fill_(1e9)
        cache.v.fill_(1e9)
        for new in split:
            ends = enumerate(zip(cache.lengths, new, strict=True))
            T, parts = max(new), [(b, at, at + n) for b, (at, n) in ends]
            padded = [[0] * (T - stop + at) + ids[b, at:stop].tolist() for b, at, stop in parts]
            with cache.ragged_pass(new):
                output = TWIN(torch.tensor(padded), cache)
            for b, at, stop in parts:
                torch.testing.assert_close(output[b, T - stop + at :], right[b, at:stop], **BOUND)


@pytest.mark.parametrize("kind", KINDS_OF_CACHE)
def test_twin_runs_every_cache_class(kind: str) -> None:
    ids, make = tokens(1, 9), KINDS_OF_CACHE[kind]
    right = in_passes(MODEL, ids, [4, 1, 4], make(MODEL.config))
    torch.testing.assert_close(in_passes(TWIN, ids, [4, 1, 4], make(MODEL.config)), right, **BOUND)


@pytest.mark.parametrize(
    ("when", "place"),
    [("_", "mlp.down_proj"), ("_pre_", "mlp.down_proj"), ("_", "self_attn.core")],
)
def test_hooks_on_twin_run(when: str, place: str) -> None:
    """As where ranks add up their parts of a sum, or a recorder watches the core."""
    ids, model, twin = tokens(1, 9), tiny(), speed_up(MODEL)
    for each in (model, twin):
        part = each.layers[1].get_submodule(place)
        getattr(part, f"register_forward{when}hook")(lambda _, x, *out: out[0] * 2 if out else (x[0] * 2,))
    right = in_passes(model, ids, [9], StaticCache(model.config))
    torch.testing.assert_close(in_passes(twin, ids, [5, 4], StaticCache(model.config)), right, **BOUND)


def test_twin_drafts_with_its_first_layers() -> None:
    """Of a cache with room for all: the rows of the other layers stay."""
    ids, cache = tokens(2, 7), StaticCache(MODEL.config, 2)
    right = in_passes(first_layers(MODEL, 1), ids, [7], GrowingCache(MODEL.config, 2))
    torch.testing.assert_close(in_passes(first_layers(TWIN, 1), ids, [4, 1, 2], cache), right, **BOUND)
    assert not cache.k[1:].any()


def test_twin_writes_only_inside_the_pool() -> None:
    """Whoever owns the pool lengthens the tables later."""
    cache = PagedCache(MODEL.config, pool=PagePool(MODEL.config, 4, page_size=3), tables=[[1]])
    cache.tables[0].append(9)
    for model in (MODEL, TWIN):
        with pytest.raises(ValueError, match=r"tables are \[\[1, 9\]\]; expected pages 0 to 3 of the pool"):
            in_passes(model, tokens(1, 5), [5], cache)
    assert (cache.length, cache.pool.k.any()) == (0, False)


def test_twin_attention_handles_extreme_scores() -> None:
    """e^x of their differences is over the largest float32, or 0."""
    model = tiny()
    with torch.no_grad():
        for layer in model.layers:
            layer.get_parameter("self_attn.q_proj.weight").mul_(30)
    ids = tokens(1, 12)
    right = in_passes(model, ids, [12], GrowingCache(model.config))
    twin = speed_up(model)
    torch.testing.assert_close(
        in_passes(twin, ids, [6, 6], StaticCache(model.config)), right, atol=5e-3, rtol=0
    )


def test_twin_last_only_and_failed_pass() -> None:
    ids, cache = tokens(2, 6), StaticCache(MODEL.config, 2, max_len=8)
    every, last = TWIN(ids, StaticCache(MODEL.config, 2)), TWIN(ids, cache, last_only=True)
    assert torch.equal(last, every[:, -1:])
    for wrong, words in ((tokens(2, 3), "expected at most 8"), (torch.full((2, 1), 99), "out of range")):
        with pytest.raises(ValueError, match=words):
            TWIN(wrong, cache)
    with pytest.raises(ValueError, match="made for batch 2"):
        TWIN(ids[:1], cache)
    assert cache.length == 6


def test_speed_up_leaves_the_model_unchanged() -> None:
    model = tiny(tied=True)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    parts = [type(part) for part in model.modules()]
    twin, ids = speed_up(model, bits=8), tokens(1, 3)
    output = twin(ids)
    assert [type(part) for part in model.modules()] == parts
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])
    with torch.no_grad():
        for layer in model.layers:
            for weight in layer.parameters():
                weight.zero_()
    assert torch.equal(twin(ids), output)  # and the twin's layers are copies


def test_thread_count_is_as_requested() -> None:
    for n in (fast.numba.config.NUMBA_NUM_THREADS, 1):  # type: ignore[attr-defined]
        speed_up(MODEL, threads=n)(tokens(1, 1))
        assert fast.numba.get_num_threads() == n


def test_default_thread_count_depends_on_model_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(fast.numba.config, "NUMBA_NUM_THREADS", 2)
    large = tiny(hidden_size=128, intermediate_size=512)
    assert [speed_up(model).threads for model in (large, MODEL)] == [2, 1]


def test_kernels_compile_under_a_lock() -> None:
    """In a process of its own: a kernel is compiled, or read, once, and Numba starts its threads once."""
    code = """if True:
        import contextlib
        import torch
        from helpers.model import fast, kernels
        from helpers.model.cache import GrowingCache, PagedCache, StaticCache
        from helpers.model.speculate import first_layers
        from tests.tiny import in_passes, tiny, tokens

        @contextlib.contextmanager
        def lock(path):
            assert path.name == "kernels.lock" and compiled() == before
            yield
            before[:] = compiled()

        def compiled():
            return [len(k.signatures) for k in vars(kernels).values() if hasattr(k, "signatures")]

        torch.set_num_threads(1)
        fast.FileLock, before, model = lock, compiled(), tiny()
        for bits in fast.BITS:
            twin = fast.speed_up(model, bits=bits)
            for kind in (StaticCache, PagedCache, GrowingCache):
                in_passes(twin, tokens(2, 40), [1, 34, 5], kind(model.config, 2))
            in_passes(first_layers(twin, 1), tokens(1, 40), [2, 38], StaticCache(model.config))
            assert compiled() == before and max(before) > 0
        print(torch.get_num_threads())"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "1\n", run.stderr


SPOILED: dict[str, Any] = {
    "": lambda model: None,
    "half": lambda model: model.to(torch.bfloat16),
    "huge": lambda model: nn.init.constant_(model.layers[2].mlp.down_proj.weight, 1e6),
    "nan": lambda model: nn.init.constant_(model.lm_head.weight, torch.nan),
}


@pytest.mark.parametrize(
    ("what", "settings_", "words"),
    [
        ("", {"bits": 4}, "bits is 4; expected 32, 16 or 8"),
        ("", {"threads": 0}, "threads is 0; expected 1 to"),
        ("half", {}, "embed_tokens.weight is torch.bfloat16 on cpu; expected float32"),
        ("huge", {"bits": 16}, "the largest weight is 1e\\+06; expected a number that fits into 16 bits"),
        ("nan", {"bits": 8}, "the largest weight is nan"),
    ],
)
def test_speed_up_refuses_invalid_arguments(what: str, settings_: dict[str, Any], words: str) -> None:
    model = tiny()
    SPOILED[what](model)
    with pytest.raises(ValueError, match=words):
        speed_up(model, **settings_)


def test_twin_cannot_be_moved_or_sped_up() -> None:
    with pytest.raises(ValueError, match="expected no to"):
        TWIN.to(torch.bfloat16)
    with pytest.raises(ValueError, match="the model is of type FastTransformer"):
        speed_up(TWIN)
    with pytest.raises(ValueError, match="the model is of type QKNormTransformer; expected a plain T"):
        speed_up(tiny(kind=QKNormConfig))


def test_zero_row_stays_zero() -> None:
    model = tiny()
    with torch.no_grad():
        model.lm_head.weight[5] = 0
    assert (speed_up(model, bits=8)(tokens(1, 4))[..., 5] == 0).all()
