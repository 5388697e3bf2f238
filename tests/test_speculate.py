"""Speculative decoding: the text of `generate` and its rows, passes, exact chances, and what is refused."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import sampling
from helpers.model import shipped, speculate
from helpers.model.cache import GrowingCache, KVCache, PagedCache, RaggedCache, StaticCache, WindowCache
from helpers.model.evaluate import held_out_diaries
from helpers.model.fast import speed_up
from helpers.model.generate import decode_step, generate
from helpers.model.speculate import Draft, Drafter, DraftModel, FirstLayers, LookUp, Speculation
from helpers.model.transformer import Transformer
from helpers.sampling import Sampling, accept, accept_or_resample, accept_sampled, draw, next_probabilities
from tests.planted import Bug, Planted, edit
from tests.tiny import tiny

torch.set_num_threads(1)

F64 = torch.float64


def close_to(model: Transformer) -> Transformer:
    """Return a model that mostly says the same."""
    torch.manual_seed(0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
    return other


MODEL = tiny(seed=2, dtype=F64)
CLOSE = close_to(MODEL)
OTHER = tiny(seed=5, dtype=F64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=6, hidden_size=14)
PROMPT = [3, 1, 4, 1, 5]
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "look-up": LookUp,
    "first layer": lambda: FirstLayers(MODEL, 1),
    "first two layers": lambda: FirstLayers(MODEL, 2),
    "another model": lambda: DraftModel(OTHER, StaticCache(OTHER.config, dtype=F64, max_len=20)),
    "a close model": lambda: DraftModel(CLOSE),
    "the model itself": lambda: DraftModel(MODEL, GrowingCache(MODEL.config, dtype=F64)),
}


class Says:
    """Drafts what it was told to, whatever comes."""

    def __init__(self, tokens: Sequence[int], q: Any = None) -> None:
        self.tokens, self.q = [*tokens], q

    def check_fits(self, *_: Any) -> None: ...

    def propose(self, text: Sequence[int], k: int, *_: Any) -> Draft:
        said = len(text) - len(PROMPT)
        return Draft(self.tokens[said : said + k], self.q)


def poisoned(kind: type[KVCache], max_len: int) -> Any:
    """Return an empty cache with poison in the rows that are laid out."""
    cache: Any = kind(MODEL.config, max_len=max_len, dtype=F64)
    if isinstance(cache, StaticCache):
        cache.k.fill_(1e9), cache.v.fill_(1e9)
    return cache


@settings(deadline=None, max_examples=60)
@given(
    prompt=st.lists(st.integers(0, 18), min_size=1, max_size=8),
    max_new=st.integers(1, 30),
    max_len=st.integers(8, 40),
    ends=st.lists(st.integers(0, 18), max_size=2),
    name=st.sampled_from([*DRAFTERS]),
    k=st.integers(1, 6),
    kind=st.sampled_from([GrowingCache, StaticCache, RaggedCache, PagedCache]),
)
def test_it_says_what_generate_says_and_leaves_the_same_rows(
    prompt: list[int], max_new: int, max_len: int, ends: list[int], name: str, k: int, kind: type[KVCache]
) -> None:
    caches = [poisoned(kind, max_len) for _ in range(2)]
    plain = generate(MODEL, prompt, max_new, cache=caches[0], eos_ids=ends)
    reply = speculate.speculate(MODEL, prompt, max_new, DRAFTERS[name](), k, cache=caches[1], eos_ids=ends)
    assert list(reply) == list(plain)
    assert (reply.tokens, reply.stop_reason) == (plain.tokens, plain.stop_reason)
    assert len(reply.seconds) == len(reply.tokens)
    assert caches[0].length == caches[1].length
    if caches[0].length < max_len:
        rows_seen = [decode_step(MODEL, [7], cache) for cache in caches]
        torch.testing.assert_close(*rows_seen, rtol=0, atol=1e-9)


def in_rounds(reply: Speculation) -> Iterator[list[int]]:
    """Yield the tokens of each pass."""
    tokens = [next(reply)]
    for token in reply:
        if reply.seconds[-1]:  # the first token of a pass has its seconds
            yield tokens
            tokens = []
        tokens.append(token)
    yield tokens


SAID = list(generate(MODEL, PROMPT, 30))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_good_drafts_save_passes(k: int) -> None:
    """Drafts that are all right give k + 1 words a pass; wrong ones give one, and cost no word."""
    right = speculate.speculate(MODEL, PROMPT, 30, Says(SAID), k)
    assert list(right) == SAID
    assert right.passes == 1 + -(-29 // (k + 1))
    assert sum(one.accepted for one in right.rounds) == 30 - right.passes
    wrong = speculate.speculate(MODEL, PROMPT, 30, Says([(x + 1) % 19 for x in SAID]), k)
    assert list(wrong) == SAID
    assert (wrong.passes, sum(one.accepted for one in wrong.rounds)) == (30, 0)
    itself = speculate.speculate(MODEL, PROMPT, 30, DraftModel(MODEL), k)
    assert list(itself) == SAID
    assert itself.rounds == right.rounds


@pytest.mark.parametrize(("n", "reason"), [(3, "max_new"), (9, "cache full"), (9, "eos")])
def test_it_stops_among_words_that_were_taken(n: int, reason: str) -> None:
    ends = [SAID[4]] if reason == "eos" else []
    wanted = SAID[: SAID.index(SAID[4]) + 1] if ends else SAID[:4] if reason == "cache full" else SAID[:3]
    cache = StaticCache(MODEL.config, max_len=8 if reason == "cache full" else 40, dtype=F64)
    reply = speculate.speculate(MODEL, PROMPT, n, Says(SAID), 6, cache=cache, eos_ids=ends)
    assert list(in_rounds(reply)) == [wanted[:1], wanted[1:]]
    assert (reply.stop_reason, cache.length) == (reason, len(PROMPT) + len(wanted) - 1)
    assert reply.rounds[1].accepted == len(wanted) - (1 if reason == "eos" else 2)


@pytest.mark.parametrize("name", ["first layer", "another model", "a close model", "the model itself"])
def test_rows_are_counted_after_every_round(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model drops k - a; a draft model drops k - 1 - a, and runs two words where all were taken."""
    drafter, k = DRAFTERS[name](), 3
    cache = StaticCache(MODEL.config, dtype=F64)
    log: dict[int, list[int]] = {}
    for method, sign in (("advance", 1), ("truncate", -1)):
        old = getattr(KVCache, method)

        def count(self: KVCache, n: int, old: Any = old, sign: int = sign) -> None:
            before = self.length
            old(self, n)
            log.setdefault(id(self), []).append(self.length - before)

        monkeypatch.setattr(KVCache, method, count)
    reply = speculate.speculate(MODEL, PROMPT, 12, drafter, k, cache=cache)
    assert list(reply) == SAID[:12]
    target, own = [len(PROMPT), 0], [0, len(PROMPT) + 1, 1, 1]
    for before, one in pairwise(reply.rounds):
        d, a = one.drafted, one.accepted
        target += [*[1] * d, -d] if d and name == "first layer" else []
        target += [1 + d, a - d]
        if before.drafted and d:
            all_taken = before.accepted == before.drafted
            own += [0, 2] if all_taken else [-(before.drafted - 1 - before.accepted), 1]
            own += [1] * (d - 1)
    assert log[id(cache)] == target
    if isinstance(drafter, DraftModel):
        assert log[id(drafter.cache)] == own


# --- drawn words ---


class Chance:
    """A generator of chance that goes a given way, and asks which ways there are where that ends."""

    def __init__(self, way: tuple[Any, ...]) -> None:
        self.way, self.asked = way, 0

    def next_of(self, ways: dict[Any, Fraction]) -> Any:
        self.asked += 1
        if self.asked > len(self.way):
            raise ForkError(ways)
        return self.way[self.asked - 1]

    def random(self) -> Any:
        return self.next_of({Fraction(n, 6): Fraction(1, 6) for n in range(6)})  # all ratios are in sixths

    def choice(self, n: int, p: Any) -> Any:
        return self.next_of({x: p[x] for x in range(n) if p[x]})


class ForkError(Exception):
    """Chance may go several ways from here."""


def every_way(run: Callable[[Any], Any]) -> dict[Any, Fraction]:
    """Run with every way that chance can go; return the exact probability of each result."""
    results: Any = Counter()
    ways: list[tuple[tuple[Any, ...], Fraction]] = [((), Fraction(1))]
    while ways:
        way, weight = ways.pop()
        try:
            results[run(Chance(way))] += weight
        except ForkError as fork:
            ways += [((*way, x), weight * w) for x, w in fork.args[0].items()]
    return {result: weight for result, weight in results.items() if weight}


def thirds(V: int, seed: int) -> Callable[[Sequence[int]], np.ndarray]:
    """Return probabilities in thirds, other ones after each text."""

    def after(text: Sequence[int]) -> np.ndarray:
        drawn = np.random.default_rng([seed, len(text), *text]).integers(V, size=3)
        return np.array([Fraction(int((drawn == x).sum()), 3) for x in range(V)], dtype=object)

    return after


def reply_of(p: Any, q: Any, k: int, rng: Any) -> tuple[int, ...]:
    """Draft k words and judge them; go on word by word to k + 1."""
    drafted: list[int] = []
    while len(drafted) < k:
        drafted.append(draw(q(drafted), rng))
    beginnings = [drafted[:n] for n in range(k + 1)]
    said = accept_sampled(drafted, np.array([*map(p, beginnings)]), np.array([*map(q, beginnings[:k])]), rng)
    while len(said) < k + 1:
        said.append(draw(p(said), rng))
    return tuple(said)


@pytest.mark.parametrize(("V", "k"), [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)])
def test_drawn_words_have_exactly_the_chances_of_the_model(V: int, k: int) -> None:
    for seed in range(6 if k < 3 else 2):
        p, q = thirds(V, seed), thirds(V, seed + 100)
        wanted = {
            text: np.prod([p(text[:n])[x] for n, x in enumerate(text)])
            for text in product(range(V), repeat=k + 1)
        }
        got = every_way(partial(reply_of, p, q, k))
        assert got == {text: weight for text, weight in wanted.items() if weight}


def test_the_share_that_is_taken() -> None:
    judge: Any = accept_or_resample
    p, q = (np.array([Fraction(x, 6) for x in row], dtype=object) for row in ([3, 2, 1], [1, 2, 3]))
    taken = {
        x: sum(judge(p, q, x, Fraction(n, 6)) is None for n in range(6)) * Fraction(1, 6) for x in range(3)
    }
    assert sum(q[x] * taken[x] for x in range(3)) == sum(np.minimum(p, q)) == Fraction(2, 3)
    assert list(judge(p, q, 2, Fraction(5, 6))) == [1, 0, 0]


SMALL = tiny(seed=3, dtype=F64, vocab_size=4, n_layers=2)


def surprise(drafter: Drafter, n: int = 500) -> float:
    """Let many replies of 3 words be drawn; return χ² against the exact chances, over its 5-sigma bound."""
    exact, texts = {}, [*product(range(4), repeat=3)]
    for text in texts:
        ids = torch.tensor([[1, 2, *text]])
        with torch.no_grad():
            logits = SMALL(ids)[0, 1:4].numpy()
        p = [next_probabilities(row, 1.5, None, None)[x] for row, x in zip(logits, text, strict=True)]
        exact[text] = float(np.prod(p))
    made = [
        tuple(speculate.speculate(SMALL, [1, 2], 3, drafter, 2, eos_ids=[], sampling=Sampling(1.5, seed=s)))
        for s in range(n)
    ]
    counts = Counter(made)
    common = [text for text in texts if n * exact[text] >= 5]
    cells = [(counts[text], n * exact[text]) for text in common]
    cells.append((n - sum(c for c, _ in cells), n - sum(e for _, e in cells)))
    chi2 = sum((c - e) ** 2 / e for c, e in cells)
    return float(chi2 / (len(common) + 5 * (2 * len(common)) ** 0.5))


DRAWN: dict[str, Callable[[], Drafter]] = {
    "look-up": LookUp,
    "first layer": lambda: FirstLayers(SMALL, 1),
    "another model": lambda: DraftModel(tiny(seed=9, dtype=F64, vocab_size=4, n_layers=1)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_replies_are_distributed_as_the_models(name: str) -> None:
    assert surprise(DRAWN[name]()) < 1


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing with the model's best word is no rule for drawn words."""
    monkeypatch.setattr(
        sampling,
        "accept_or_resample",
        lambda p, q, token, u: None if token == p.argmax() else p,
    )
    assert surprise(DRAWN["another model"]()) > 1


def test_words_drawn_with_a_seed_are_the_same_again() -> None:
    def reply(seed: int) -> list[int]:
        sampling = Sampling(1.0, 5, 0.9, seed)
        return list(speculate.speculate(MODEL, PROMPT, 20, FirstLayers(MODEL, 1), 3, sampling=sampling))

    assert reply(1) == reply(1) != reply(2)


# --- the shipped model, beside others ---


@pytest.fixture(scope="module")
def diaries() -> tuple[Transformer, list[list[int]], list[list[int]]]:
    """The shipped model, beginnings of 30 diaries, and how it goes on."""
    model, tokenizer = shipped.load()
    prompts = [tokenizer.encode(" ".join(one.words[:12])) for one in held_out_diaries(30, seed=0)]
    return model, prompts, [list(generate(model, prompt, 40)) for prompt in prompts]


def test_thirty_diaries(diaries: Any) -> None:
    model, prompts, replies = diaries
    twin = speed_up(model, threads=1)
    drafters: list[tuple[Transformer, Drafter]] = [(model, LookUp()), (model, FirstLayers(model, 1))]
    drafters += [(twin, FirstLayers(twin, 1)), (twin, DraftModel(speed_up(model, bits=8, threads=1)))]
    for which, drafter in drafters:
        made = [speculate.speculate(which, prompt, 40, drafter, 4) for prompt in prompts]
        assert [list(reply) for reply in made] == replies
        assert sum(map(len, replies)) / sum(reply.passes for reply in made) > 1.2


def test_transformers_says_the_same(diaries: Any, tmp_path: Any) -> None:
    """Its assisted generation and its look-up, with our checkpoint as model and as draft."""
    transformers = pytest.importorskip("transformers")
    model, prompts, replies = diaries
    from helpers.model import load as checkpoints

    checkpoints.save(model, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    draft = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, num_hidden_layers=1)
    for prompt, reply in zip(prompts[:5], replies, strict=False):
        ids = torch.tensor([prompt])
        for way in ({"prompt_lookup_num_tokens": 4}, {"assistant_model": draft}):
            out = theirs.generate(ids, max_new_tokens=40, do_sample=False, **way)
            assert out[0, len(prompt) :].tolist() == reply


# --- refused, and unharmed ---


class Chatters(LookUp):
    """Drafts more than it is asked for."""

    def propose(self, *_: Any) -> Draft:
        return Draft([1] * 9)


def ask(drafter: Drafter, **given: Any) -> Speculation:
    return speculate.speculate(MODEL, PROMPT, 5, drafter, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ask(LookUp(), k=0), "k is 0; expected a whole number, 1 or more"),
        (lambda: ask(LookUp(0)), "longest is 0"),
        (lambda: ask(LookUp(), max_new=0), "max_new"),
        (lambda: ask(DraftModel(SMALL)), "has 4 words, the model 19; expected the same words"),
        (lambda: ask(FirstLayers(OTHER, 1)), "another model's"),
        (lambda: FirstLayers(MODEL, 3), "n is 3; expected 1 to 2 of 3 layers"),
        (lambda: FirstLayers(MODEL, 0), "n is 0"),
        (lambda: ask(LookUp(), cache=WindowCache(MODEL.config, dtype=F64)), "WindowCache.* rows leave"),
        (lambda: ask(DraftModel(MODEL, WindowCache(MODEL.config, dtype=F64))), "WindowCache.* rows leave"),
        (lambda: ask(LookUp(), sampling=Sampling(1.0, 20)), "top_k is 20; expected at most 19"),
        (lambda: next(ask(LookUp(), cache=StaticCache(OTHER.config, dtype=F64))), "made for n_layers 2"),
        (lambda: list(ask(Says(SAID), sampling=Sampling(1.0))), "q has shape None; expected"),
        (lambda: list(ask(Says(SAID, np.ones((2, 3))), sampling=Sampling(1.0))), r"q has shape \(2, 3\)"),
        (lambda: list(ask(Chatters())), "9 words were drafted; expected 3 at most"),
    ],
)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_cache_in_use_is_refused_now_and_later() -> None:
    cache = StaticCache(MODEL.config, dtype=F64)
    with pytest.raises(ValueError, match="expected one for each"):
        ask(DraftModel(MODEL, cache), cache=cache)
    reply = ask(LookUp(), cache=cache)
    next(reply)
    for use in (lambda: ask(LookUp(), cache=cache), lambda: DraftModel(MODEL, cache)):
        with pytest.raises(ValueError, match="holds 5 tokens"):
            use()
    cache.truncate(4)
    with pytest.raises(ValueError, match="not as this reply left it"):
        list(reply)
    assert reply.stop_reason == "error"


@pytest.mark.parametrize("drafter", [Says(SAID), FirstLayers(MODEL, 1)], ids=["model", "draft"])
def test_a_round_that_fails_leaves_the_cache_as_it_was(drafter: Drafter) -> None:
    cache = StaticCache(MODEL.config, dtype=F64)
    reply = ask(drafter, cache=cache)
    next(reply)
    hook = MODEL.norm.register_forward_hook(lambda *_: torch.full((1, 4, 30), np.nan, dtype=F64))
    try:
        with pytest.raises(ValueError, match="NaN"):
            next(reply)
    finally:
        hook.remove()
    assert (cache.length, reply.tokens, reply.stop_reason) == (5, SAID[:1], "error")


def test_where_the_newest_words_stood() -> None:
    text = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3]
    assert speculate.follow(text, 3) == [4, 9, 2, 3, 5, 1, 2, 3]
    assert speculate.follow(text, 2) == [5, 1, 2, 3]
    assert speculate.follow(text[:-1], 3) == [3, 4, 9, 2, 3, 5, 1, 2]
    assert speculate.follow([1, 2, 3], 3) == speculate.follow([7], 3) == []
    assert accept([5, 6], [5, 7, 8]) == [5, 7]


# --- planted bugs ---

planted = Planted()
ROWS = test_rows_are_counted_after_every_round
SAVED, STOPS = test_good_drafts_save_passes, test_it_stops_among_words_that_were_taken
EXACT = test_drawn_words_have_exactly_the_chances_of_the_model
LOOP = Speculation._in_rounds

planted("rejected rows left in the cache", [ROWS], "mlx-lm PR#1109")(
    edit(LOOP, "cache.truncate(len(text) - 1)", "pass")
)
planted("one row too many dropped", [ROWS])(
    edit(LOOP, "cache.truncate(len(text) - 1)", "cache.truncate(max(1, len(text) - 2))")
)
planted("one row too many dropped by the draft", [ROWS], "mlxcel #994")(
    edit(DraftModel.propose, "len(text) - 1))", "len(text) - 1) - (1 if self.seen else 0))")
)
planted("the last row is lost after all were taken", [SAVED, ROWS], "vllm #9730")(
    edit(
        DraftModel.propose, "text[self.cache.length :]", "text[self.cache.length :][-1 if self.seen else 0:]"
    )
)
planted("no residual", [EXACT])(edit(accept_or_resample, "np.maximum(p - q, 0)", "p"))
planted("the residual is not scaled", [EXACT])(edit(accept_or_resample, "rest / rest.sum()", "rest"))
planted("q / p", [EXACT])(edit(accept_or_resample, "u * q[token] < p[token]", "u * p[token] < q[token]"))
planted("the word after all from q", [EXACT])(edit(accept_sampled, "draw(p[-1]", "draw(q[-1]"))
planted("all but none", [SAVED], "transformers #46235: [:-0]")(
    edit(accept, "drafted[:a]", "drafted[: a - len(drafted)]")
)
planted("no word of the model's own", [SAVED])(
    edit(accept, "[*drafted[:a], chosen[a]]", "[*drafted[:a]] or [chosen[0]]")
)
planted("goes on after eos", [STOPS])(edit(Speculation._verify, "in self._ends)", "in ())"))
planted("a word too many", [STOPS])(edit(LOOP, "- len(text) - 1", "- len(text)"))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
