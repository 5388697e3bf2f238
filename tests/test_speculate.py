"""Speculative decoding: what is refused, the text of `generate`, its rows, passes, exact probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import sampling
from helpers.model import speculate
from helpers.model.cache import Cache, GrowingCache, PagedCache, StaticCache, WindowCache
from helpers.model.contributions import residual_contributions
from helpers.model.generate import decode_step, generate
from helpers.model.speculate import Draft, Drafter, EarlyExit, PromptLookup, Speculation
from helpers.model.transformer import Transformer
from helpers.sampling import Sampling, accept, accept_or_resample, next_probabilities, sample_index
from tests.tiny import tiny

torch.set_num_threads(1)

F64 = torch.float64


MODEL = tiny(seed=2, dtype=F64)
OTHER = tiny(seed=5, dtype=F64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=6, hidden_size=14)
SMALL = tiny(seed=3, dtype=F64, vocab_size=3, n_layers=2)
PROMPT = [3, 1, 4, 1, 5]
REPLY = list(generate(MODEL, PROMPT, 30))


class FixedDrafter:
    """Drafts fixed tokens, whatever the text is."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = [*tokens]

    def propose(self, text: Sequence[int], k: int, *_: Any) -> Draft:
        output = len(text) - len(PROMPT)
        return Draft(self.tokens[output : output + k])


def ask(drafter: Drafter, k: int = 3, max_new_tokens: int = 5, **given: Any) -> Speculation:
    return speculate.speculate(MODEL, PROMPT, max_new_tokens, drafter, k, **given)


def empty(max_len: int = 40, kind: type[Cache] = StaticCache, model: Transformer = MODEL) -> Any:
    """Return a cache whose allocated memory is poisoned."""
    cache: Any = kind(model.config, max_len=max_len, dtype=F64)
    if isinstance(cache, StaticCache):
        cache.k.fill_(1e9), cache.v.fill_(1e9)
    return cache


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ask(PromptLookup(), k=0), "k is 0; expected a whole number, 1 or more"),
        (lambda: PromptLookup(0), "max_ngram_size is 0"),
        (lambda: ask(PromptLookup(), max_new_tokens=0), "max_new_tokens"),
        (lambda: ask(EarlyExit(OTHER, 1)), "the drafter is of another model"),
        (lambda: EarlyExit(MODEL, 3), "n_layers is 3; expected 1 to 2, of 3 layers"),
        (
            lambda: ask(PromptLookup(), cache=empty(kind=WindowCache)),
            "WindowCache cannot truncate",
        ),
        (lambda: ask("lookup"), "the drafter is 'lookup'; expected an object such as"),  # type: ignore[arg-type]
        (lambda: ask(PromptLookup), "the drafter is <class"),  # type: ignore[arg-type]
        (lambda: ask(PromptLookup(), sampling=0.8), "sampling is 0.8; expected settings"),
        (lambda: ask(PromptLookup(), cache=empty(model=OTHER)), "made for n_layers 2"),
    ],
)
def test_invalid_speculation_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def end_with(how: Any, model: Transformer) -> Any:
    """Make the following passes of a model raise, or return NaN; return the hook."""

    def spoil(_: Any, __: Any, out: torch.Tensor) -> Any:
        if how is KeyboardInterrupt:
            raise how
        return out * np.nan if how == "NaN" else out

    return model.embed_tokens.register_forward_hook(spoil)


@pytest.mark.parametrize("drafter", [FixedDrafter(REPLY), EarlyExit(MODEL, 1)], ids=["model", "draft"])
@pytest.mark.parametrize("how", [KeyboardInterrupt, "NaN", "choice"])
def test_failed_round_leaves_cache_unchanged(
    how: Any, drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = empty()
    reply = ask(drafter, cache=cache)
    next(reply)
    hook = end_with(how, MODEL)
    if how == "choice":
        monkeypatch.setattr(sampling, "accept", lambda *_: exec("raise KeyboardInterrupt"))
    with pytest.raises((ValueError, KeyboardInterrupt)):
        next(reply)
    hook.remove()
    assert (cache.length, reply.tokens, reply.stop_reason) == (5, REPLY[:1], "error")


def test_first_layers_share_weights() -> None:
    ids = torch.tensor([PROMPT])
    parts = [*residual_contributions(MODEL, ids).values()]  # of the embedding, and two of each layer
    for n in range(1, MODEL.config.n_layers):
        output = speculate.first_layers(MODEL, n)(ids)[0, -1]
        state = torch.stack(parts[: 1 + 2 * n]).sum(0)
        torch.testing.assert_close(output, MODEL.lm_head(MODEL.norm(state)), rtol=0, atol=1e-9)


def test_verification_computes_k_plus_1_logits() -> None:
    """And not those of the whole prompt, a P × V matrix."""
    seen: list[int] = []
    hook = MODEL.lm_head.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    list(ask(FixedDrafter(REPLY)))
    hook.remove()
    assert seen == [1, 4]


def test_prompt_lookup_finds_the_newest_match() -> None:
    text = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3]
    assert speculate.prompt_lookup(text, 3) == [4, 9, 2, 3, 5, 1, 2, 3]
    assert speculate.prompt_lookup(text, 2) == [5, 1, 2, 3]
    assert speculate.prompt_lookup(text[:-1], 3) == [3, 4, 9, 2, 3, 5, 1, 2]
    assert speculate.prompt_lookup([1, 2, 3], 3) == speculate.prompt_lookup([7], 3) == []
    assert accept([5, 6], [5, 7, 8]) == [5, 7]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_good_drafts_save_passes(k: int) -> None:
    """Correct drafts yield k + 1 tokens a pass; wrong ones yield one, and do not change the reply."""
    right = ask(FixedDrafter(REPLY), k, 30)
    wrong = ask(FixedDrafter([(x + 1) % 19 for x in REPLY]), k, 30)
    assert list(right) == list(wrong) == REPLY
    assert len(right.rounds) == 1 + -(-29 // (k + 1))
    assert sum(one.n_accepted for one in right.rounds) == 30 - len(right.rounds)
    assert (len(wrong.rounds), sum(one.n_accepted for one in wrong.rounds)) == (30, 0)


def test_drafts_are_accepted_up_to_eos() -> None:
    reply = ask(FixedDrafter(REPLY), 9, 30, eos_ids=[REPLY[4]])
    assert list(reply) == REPLY[:5]
    assert reply.rounds == [(0, 0), (9, 4)]


def test_first_token_of_a_round_has_its_seconds() -> None:
    reply = ask(FixedDrafter(REPLY), 3, 7)
    list(reply)
    assert [seconds > 0 for seconds in reply.seconds] == [True, *[True, False, False, False], *[True, False]]


DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "prompt lookup": PromptLookup,
    "first layer": lambda: EarlyExit(MODEL, 1),
    "two of its layers": lambda: EarlyExit(MODEL, 2),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_cache_length_after_every_round(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model truncates d - a tokens, and the draft model all d of its tokens."""
    cache, log = empty(), list[int]()
    for method in ("advance", "truncate"):
        old = getattr(Cache, method)

        def count(self: Cache, n: int, old: Any = old) -> None:
            before = self.length
            old(self, n)
            log.append(self.length - before)

        monkeypatch.setattr(Cache, method, count)
    reply = ask(DRAFTERS[name](), 3, 12, cache=cache)
    assert list(reply) == REPLY[:12]
    target = list[int]()
    for one in reply.rounds:
        d, a = one.n_drafted, one.n_accepted
        target += [*[1] * d, -d] if d and name != "prompt lookup" else []
        target += [1 + d if target else len(PROMPT), a - d]
    assert log == target


class Chance:
    """A generator of chance that goes a given way, and asks which ways there are where that ends."""

    def __init__(self, way: tuple[Any, ...]) -> None:
        self.way, self.asked = way, 0

    def next_of(self, ways: dict[Any, Any]) -> Any:
        self.asked += 1
        if self.asked > len(self.way):
            raise ForkError({x: weight for x, weight in ways.items() if weight})
        return self.way[self.asked - 1]

    def random(self) -> Any:
        return Uniform(self)

    def choice(self, n: int, p: Any) -> Any:
        return self.next_of(dict(enumerate(p)))


class Uniform:
    """A number u from 0 to 1, for one question: whether u · q < p. The chance is min(1, p / q)."""

    def __init__(self, chance: Chance, q: Any = 1) -> None:
        self.chance, self.q = chance, q

    def __mul__(self, q: Any) -> Uniform:
        return Uniform(self.chance, q)

    def __lt__(self, p: Any) -> bool:
        share = min(1, p / self.q)
        return self.chance.next_of({True: share, False: 1 - share})


class ForkError(Exception):
    """Chance may go several ways from here."""


def every_way(run: Callable[[Any], Any]) -> dict[Any, Any]:
    """Run with every way that chance can go; return the probability of each result."""
    results: Any = Counter()
    ways: list[tuple[tuple[Any, ...], Any]] = [((), 1)]
    while ways:
        way, weight = ways.pop()
        try:
            results[run(Chance(way))] += weight
        except ForkError as fork:
            ways += [((*way, x), weight * w) for x, w in fork.args[0].items()]
    return results


def test_acceptance_rate() -> None:
    p, q = np.array([3, 2, 1]) / 6, np.array([1, 2, 3]) / 6
    taken = every_way(lambda rng: accept_or_resample(p, q, sample_index(q, rng), rng.random()) is None)
    assert taken[True] == pytest.approx(np.minimum(p, q).sum())
    assert accept_or_resample(np.array([1.0, 0]), np.array([0.5, 0.5]), 1, 0.0) is not None  # 0 < 0 is not


@settings(deadline=None, max_examples=60)
@given(
    prompt=st.lists(st.integers(0, 18), min_size=1, max_size=8),
    max_new_tokens=st.integers(1, 30),
    max_len=st.integers(8, 40),
    ends=st.lists(st.integers(0, 18), max_size=2),
    name=st.sampled_from([*DRAFTERS]),
    k=st.integers(1, 6),
    kind=st.sampled_from([GrowingCache, StaticCache, PagedCache]),
)
def test_speculate_equals_generate(
    prompt: list[int],
    max_new_tokens: int,
    max_len: int,
    ends: list[int],
    name: str,
    k: int,
    kind: type[Cache],
) -> None:
    caches = [empty(max_len, kind) for _ in range(2)]
    plain = generate(MODEL, prompt, max_new_tokens, cache=caches[0], eos_ids=ends)
    reply = speculate.speculate(
        MODEL, prompt, max_new_tokens, DRAFTERS[name](), k, cache=caches[1], eos_ids=ends
    )
    assert list(reply) == list(plain)
    assert (reply.tokens, reply.stop_reason) == (plain.tokens, plain.stop_reason)
    assert len(reply.seconds) == len(reply.tokens)
    assert caches[0].length == caches[1].length
    if caches[0].length < max_len:
        rows_seen = [decode_step(MODEL, [7], cache) for cache in caches]
        torch.testing.assert_close(*rows_seen, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "top_k"),
    [(lambda: PromptLookup(1), None), (lambda: EarlyExit(SMALL, 1), 2)],
    ids=["prompt lookup", "first layer"],
)
def test_sampled_speculation_has_model_probabilities(
    make: Any, top_k: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way that chance can go, over two rounds of two drafts. Logits come as float32."""

    def reply(chance: Chance) -> tuple[int, ...]:
        monkeypatch.setattr(np.random, "default_rng", lambda _: chance)
        return tuple(
            speculate.speculate(SMALL, [1, 2], 4, make(), 2, eos_ids=[], sampling=Sampling(1.5, top_k))
        )

    got = every_way(reply)
    for text in product(range(3), repeat=4):
        with torch.no_grad():
            logits = SMALL(torch.tensor([[1, 2, *text]]))[0, 1:5].numpy()
        p = [next_probabilities(row, 1.5, top_k)[x] for row, x in zip(logits, text, strict=True)]
        assert got.get(text, 0) == pytest.approx(np.prod(p), abs=1e-6)


def test_seed_repeats_sampled_speculation() -> None:
    replies = [
        list(ask(EarlyExit(MODEL, 1), max_new_tokens=20, sampling=Sampling(1.0, 5, 0.9, seed)))
        for seed in (1, 1, 2)
    ]
    assert replies[0] == replies[1] != replies[2]
