"""One order of sums for every batch: the same bits, whoever else runs, however a text is cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model import shipped
from helpers.model.cache import GrowingCache, PagedCache
from helpers.model.config import StateConfig
from helpers.model.generate import generate
from helpers.model.one_shape import Blockwise, BlockwiseCore, make_batch_invariant
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine
from tests.planted import Bug, Planted
from tests.tiny import SIZES as TINY
from tests.tiny import same, tiny, tokens

torch.set_num_threads(1)
planted = Planted()

DTYPES = [torch.float32, torch.bfloat16]
SIZES: dict[str, dict[str, Any]] = {
    "GQA": {"hidden_size": 40, "intermediate_size": 24},
    "MQA": {"n_kv_heads": 1, "head_dim": 16, "hidden_size": 24, "intermediate_size": 40},
}


def small(dtype: torch.dtype, sizes: str = "GQA") -> Transformer:
    """A model for texts of up to 80 tokens."""
    return tiny(dtype=dtype, max_seq_len=80, **SIZES[sizes]).requires_grad_(False)


def all_logits(model: Transformer, texts: list[list[int]], rng: random.Random) -> list[Tensor]:
    """Run texts together, some tokens of each in each pass, and padding; the logits of each, (T, V)."""
    cache = PagedCache(model.config, len(texts), dtype=model.embed_tokens.weight.dtype)
    output: list[list[Tensor]] = [[] for _ in texts]
    while left := [len(text) - n for text, n in zip(texts, cache.lengths, strict=True)]:
        if not any(left):
            return [torch.cat(rows) for rows in output]
        counts = [min(n, rng.choice([0, 1, 1, 1, 6, 17])) for n in left]
        T, at = max(*counts, 1) + rng.choice([0, 0, 3]), list(cache.lengths)
        new = [[0] * (T - n) + text[i : i + n] for text, i, n in zip(texts, at, counts, strict=True)]
        with cache.ragged_pass(counts):
            logits = model(torch.tensor(new), cache)
        for rows, each, n in zip(output, logits, counts, strict=True):
            rows.append(each[T - n :])
    raise AssertionError("no texts")


def same_as_alone(model: Transformer, texts: list[list[int]], rng: random.Random) -> None:
    for text, got in zip(texts, all_logits(model, texts, rng), strict=True):
        assert torch.equal(got, model(torch.tensor([text]))[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES)
def test_same_bits_in_any_batch_and_chunking(sizes: str, dtype: torch.dtype) -> None:
    model, rng = make_batch_invariant(small(dtype, sizes)), random.Random(1)
    for batch in (2, 9):
        lengths = [rng.randint(1, 40) for _ in range(batch)]
        same_as_alone(model, [tokens(1, n, seed=n)[0].tolist() for n in lengths], rng)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_same_bits_after_a_shared_prefix(dtype: torch.dtype) -> None:
    """Rows that another text's pass has written, of each length."""
    model = make_batch_invariant(small(dtype))
    a, b = tokens(2, 40)
    for shared in (1, 7, 16, 25):
        text, cache = torch.cat([a[:shared], b[shared:]])[None], GrowingCache(model.config, 3, dtype=dtype)
        model(a.expand(3, -1), cache)
        cache.truncate(shared)
        got = model(text[:, shared:].expand(3, -1), cache)
        assert torch.equal(got, model(text)[:, shared:].expand(3, -1, -1))


def test_engine_output_equals_single_request() -> None:
    """The shipped model, in bfloat16 with a tie in every fifth step; pages shared, prompts in chunks."""
    model, tokenizer = shipped.load_shipped()
    model = make_batch_invariant(model.bfloat16())
    engine = Engine(model, 5, token_budget=24)
    texts = [
        "Ada writes from Oslo .",
        "Ada writes from Oslo . Today weather",
        "It was",
        "Omar lives in Rome .",
    ]
    prompts = [tokenizer.encode(f"{text} {end}") for text in texts for end in ("Monday was", "The river")]
    for n, prompt in enumerate(prompts):
        engine.add(n, prompt, 20)
    output_ids = engine.run_all()
    assert output_ids == {n: list(generate(model, prompt, 20)) for n, prompt in enumerate(prompts)}


def test_batch_invariant_model_computes_the_same() -> None:
    before = small(torch.float64)
    ids = tokens(3, 61)
    same(make_batch_invariant(before)(ids), before(ids))
    narrow, seen = torch.randn(3, 1, 2, 40, 8).bfloat16(), torch.ones(40, 40, dtype=torch.bool)
    in_float32 = BlockwiseCore(1.0)(*narrow.float(), seen).bfloat16()
    assert torch.equal(BlockwiseCore(1.0)(*narrow, seen), in_float32), "sums run in float32"
    assert not any(isinstance(part, Blockwise | BlockwiseCore) for part in before.modules()), "off by default"


def test_fully_masked_query_gives_zero() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    out = BlockwiseCore(1.0)(q, k, v, torch.tensor([False, True, False, True, True])[:, None].expand(5, 5))
    assert out[:, :, [0, 2]].eq(0).all()
    assert out[:, :, [1, 3, 4]].ne(0).all()


def test_unsupported_width_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size is 30; expected a multiple of 8"):
        make_batch_invariant(tiny())
    with pytest.raises(ValueError, match="the model is a StateTransformer; expected a Transformer"):
        make_batch_invariant(StateTransformer(StateConfig(**TINY, state_layers=(1,))))


def test_row_bits_do_not_depend_on_block_position() -> None:
    """Products of the shipped model and of the small ones, in both dtypes."""
    for model in (shipped.load_shipped()[0], *(small(torch.float32, sizes) for sizes in SIZES)):
        for part in [part for part in model.modules() if isinstance(part, torch.nn.Linear)]:
            for dtype in DTYPES:
                weight, x = part.weight.to(dtype), torch.randn(8, part.in_features).to(dtype)
                at = [F.linear(x.roll(n, 0), weight)[n] for n in range(8)]
                assert all(torch.equal(one, at[0]) for one in at), (weight.shape, dtype)


# --- planted ---

BITS, SHARED = (
    test_same_bits_in_any_batch_and_chunking,
    test_same_bits_after_a_shared_prefix,
)


@planted("a fixed order that depends on the batch: products", [BITS, SHARED], of=Blockwise.forward)
def _(old: Any, self: Blockwise, x: Tensor) -> Tensor:
    if len(x) > 1 and isinstance(self.part, torch.nn.Linear):
        return F.linear(x.flip(-1), self.part.weight.flip(-1), self.part.bias)
    return old(self, x)


@planted("blocks begin where the new keys do", [SHARED], of=BlockwiseCore.forward)
def _(old: Any, self: BlockwiseCore, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    before = (k.shape[2] - q.shape[2]) % 16
    k, v = (F.pad(x, (0, 0, 16 - before, 0)) for x in (k, v))
    return old(self, q, k, v, F.pad(mask, (16 - before, 0)))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_planted_bug_fails_its_tests(bug: Bug) -> None:
    assert bug.missed_by() == []
