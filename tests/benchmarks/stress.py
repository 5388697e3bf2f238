"""Random runs against exact oracles for as long as you like: what the tests do with few and small cases.

    python -m tests.benchmarks.stress 10                                # minutes; all kinds in turn
    python -m tests.benchmarks.stress --kind engine --seed 7 --size 12  # one case, with its traceback

A kind of case is a function of a source of chance and a size, which raises where the project is wrong. A case
that fails is told with its seed and with the smallest one found that fails as well. Not part of the test run.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.model.cache import Cache
from helpers.model.cache.quantized import BITS, dequantize, pack, quantize, unpack
from tests import test_model_paged as paged
from tests import test_one_shape as ordered
from tests import test_serve_engine as served
from tests import test_serve_scheduler as scheduled
from tests import test_speculate as speculated
from tests.doubles import EXACT, KINDS, LOSSY
from tests.test_model_smaller import visible
from tests.tiny import failing, in_passes, tiny, tokens

Case = Callable[[random.Random, int], None]
LARGEST, MOST, SHRINKING = 12, 3, 20  # size of a case; failures of a kind; seconds to make one smaller

MODEL = tiny(seed=3, dtype=torch.float64).requires_grad_(False)
DTYPES = (torch.float64, torch.float32, torch.float16)
CONFIG, ROOM = MODEL.config, MODEL.config.max_seq_len


def inner(test: Any) -> Callable[..., None]:
    """Return what a test does with one example."""
    return test.hypothesis.inner_test


def asked(rng: random.Random, size: int, prompts: list[int], longest: int) -> dict[str, Any]:
    """Draw requests with such tokens in their prompts, and a server for them."""
    lengths = [rng.randint(1, min(3 * size, longest - 1)) for _ in range(rng.randint(1, 2 * size))]
    return {
        "asked": [(rng.choices(prompts, k=n), rng.randint(1, min(2 * size, longest - n))) for n in lengths],
        "size": rng.randint(1, 6),  # of a page
        "extra": rng.randint(0, 3 * size),  # pages beside those that the longest text takes
        "slots": rng.randint(1, size),
        "spare": rng.choice([None, rng.randint(0, 2 * size)]),  # of the budget
        "seed": rng.randrange(10**6),
    }


def scheduler(rng: random.Random, size: int) -> None:
    """Requests through the scheduler: owners, budget, slots, order and pages after every step."""
    inner(scheduled.test_every_reply_equals_the_reply_alone)(**asked(rng, size, [-2, -1], 5 * size))


def engine(rng: random.Random, size: int) -> None:
    """Requests on the engine, and Ctrl-C: every word as said alone; what nobody may read is NaN."""
    case = asked(rng, size, [5, 6, 7], ROOM)
    case["asked"] = [(*request, rng.choice(served.SAMPLED)) for request in case["asked"]]
    inner(served.test_every_reply_equals_generate)(**case)


def fixed(rng: random.Random, size: int) -> None:
    """Texts together under one order of sums: the bits of each alone, however they are cut."""
    model = ordered.make_batch_invariant(
        ordered.small(rng.choice(ordered.DTYPES), rng.choice([*ordered.SIZES]))
    )
    texts = [rng.choices(range(19), k=rng.randint(1, 6 * size)) for _ in range(rng.randint(1, size))]
    ordered.same_as_alone(model, texts, rng)


def unequal(rng: random.Random, size: int) -> None:
    """Sequences of unequal length in one cache, in passes of any counts and padding, cut back on the way."""
    counts = [[rng.randint(0, 7) for _ in range(3)] for _ in range(size)]
    passes = [(each, rng.randint(0, 2), rng.randint(0, 18)) for each in counts]
    cut = [rng.randint(0, 9) for _ in range(3)]
    inner(paged.test_batched_logits_equal_single_sequences)(passes, cut, rng.randint(1, 11))


def speculation(rng: random.Random, size: int) -> None:
    """A greedy reply with drafts: the words of `generate`, why it stopped, and its rows."""
    inner(speculated.test_speculate_equals_generate)(
        prompt=[rng.randint(0, 18) for _ in range(rng.randint(1, 8))],
        max_new_tokens=rng.randint(1, 3 * size),
        max_len=rng.randint(8, ROOM),
        ends=rng.sample(range(19), rng.randint(0, 2)),
        name=rng.choice([*speculated.DRAFTERS]),
        k=rng.randint(1, size),
        kind=type(made(rng.choice([*EXACT]), 1)),
    )


def caches(rng: random.Random, size: int) -> None:
    """Calls on a cache of any kind: passes, broken ones, too long ones, steps back.

    What a pass says is what the model says of the text that counts, all at once; or, where rows are rounded,
    with a new cache that has seen only those passes that count.
    """
    name, batch = rng.choice([*KINDS]), rng.randint(1, 3)
    text, split, cache = torch.empty(batch, 0, dtype=torch.int64), list[int](), made(name, batch)
    for _ in range(2 * size):
        new = tokens(batch, rng.randint(1, 9), seed=rng.randrange(10**6))
        act = rng.choice(["pass", "pass", "pass", "broken", "back"])
        if act == "back":
            split = back(rng, cache, name, split)
            text = text[:, : sum(split)]
        elif cache.length + new.shape[1] > ROOM:
            with pytest.raises(ValueError, match="expected at most"):
                MODEL(new, cache)
        elif act == "broken":
            place = rng.choice(["layers.0", "layers.2", "norm", "lm_head"])
            with failing(MODEL, place), pytest.raises(KeyboardInterrupt):
                MODEL(new, cache)
        else:
            text, split = torch.cat([text, new], 1), [*split, new.shape[1]]
            got, expected = MODEL(new, cache), known(name, text, split)
            torch.testing.assert_close(got, expected[:, -new.shape[1] :], rtol=0, atol=1e-9)
        assert cache.length == sum(split) == text.shape[1]


def made(name: str, batch: int) -> Cache:
    """Return an empty cache of a kind."""
    return KINDS[name](CONFIG, batch=batch, dtype=torch.float64)


def back(rng: random.Random, cache: Cache, name: str, split: list[int]) -> list[int]:
    """Cut a cache back, as far as it lets itself be; return the passes that count."""
    length = 0 if name == "quantized" else rng.randint(0, cache.length)  # what is rounded stays so
    try:
        cache.truncate(length)
    except ValueError:
        assert name in LOSSY
        return split
    starts = [sum(split[:n]) for n in range(len(split))]
    return [min(n, length - start) for n, start in zip(split, starts, strict=True) if start < length]


def known(name: str, text: Tensor, split: list[int]) -> Tensor:
    """Return all logits of a text: those of a window under a mask."""
    if name == "quantized":
        return in_passes(MODEL, text, split, made(name, len(text)))
    return MODEL(text, visible(4, 1, len(text)) if name == "window" else None)


def interrupted(rng: random.Random, size: int) -> None:
    """Drawn replies, Ctrl-C now and then: the same replies in the same steps."""
    served.test_ctrl_c_changes_neither_replies_nor_steps(rng.randrange(10**6))


def rounding(rng: random.Random, size: int) -> None:
    """Numbers rounded to a few bits, packed and back: within half a step, and what its dtype costs."""
    bits, dim, dtype = rng.choice(BITS), rng.choice([-1, -2]), rng.choice(DTYPES)
    spread, middle = 10 ** rng.uniform(-7, 3), rng.choice([0.0, rng.uniform(-9, 9)])
    shape = (rng.randint(1, 2), rng.randint(1, 3), 8 * rng.randint(1, size), rng.randint(1, 2 * size))
    chance = torch.Generator().manual_seed(rng.randrange(10**6))
    x = (middle + spread * torch.randn(shape, generator=chance, dtype=torch.float64)).to(dtype)
    levels, low, step = quantize(x, bits, dim)
    assert torch.equal(unpack(pack(levels, bits), bits), levels)
    exact, top, info = x.double(), 2**bits - 1, torch.finfo(dtype)
    half = (exact.amax(dim, keepdim=True) - exact.amin(dim, keepdim=True)) / top / 2
    rounded = top * (2 * half * info.eps + info.smallest_normal * info.eps) + 4 * info.eps * exact.abs().max()
    assert ((dequantize(levels, low, step).double() - exact).abs() <= half + rounded).all()


CASES = {
    case.__name__: case
    for case in (scheduler, engine, fixed, unequal, caches, speculation, rounding, interrupted)
}


def wrong(case: Case, seed: int, size: int) -> str:
    """Run a case; return what it raises, or nothing."""
    try:
        case(random.Random(seed), size)
    except (Exception, pytest.fail.Exception) as error:
        calls = traceback.extract_tb(error.__traceback__)
        at = [call for call in calls if "site-packages" not in call.filename][-1]
        message = " ".join(str(error).split())[:100]
        return f"{type(error).__name__}: {message} ({Path(at.filename).name}:{at.lineno}, {at.line})"
    return ""


def smallest(case: Case, seed: int, size: int) -> tuple[int, int, str]:
    """Return the seed and the size of the smallest case found that fails, and how."""
    over = time.monotonic() + SHRINKING
    for less in range(1, size):
        for near in range(seed, seed + 200):
            if time.monotonic() > over:
                break
            if message := wrong(case, near, less):
                return near, less, message
    return seed, size, "as above"


def stress(cases: Mapping[str, Case], minutes: float, seed: int) -> int:
    """Run cases of all kinds in turn until the time is over; tell each that fails; return how many did."""
    over, ran, failed = time.monotonic() + 60 * minutes, Counter[str](), Counter[str]()
    while time.monotonic() < over and (left := [name for name in cases if failed[name] < MOST]):
        name = min(left, key=lambda name: ran[name])
        this, size = seed + ran[name], ran[name] % LARGEST + 1
        ran[name] += 1
        if message := wrong(cases[name], this, size):
            failed[name] += 1
            near, less, why = smallest(cases[name], this, size)
            print(f"{name}, seed {this}, size {size}: {message}")
            print(f"    smallest: --kind {name} --seed {near} --size {less}: {why}", flush=True)
    print(", ".join(f"{name} {n:,} ({failed[name]} failed)" for name, n in ran.items()))
    return failed.total()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("minutes", nargs="?", type=float, default=1.0)
    parser.add_argument("--kind", choices=CASES, help="this one only")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="the first")
    parser.add_argument("--size", type=int, help=f"of one case; without it cases grow from 1 to {LARGEST}")
    options = parser.parse_args()
    kinds = {options.kind: CASES[options.kind]} if options.kind else CASES
    if options.size:
        for case in kinds.values():
            case(random.Random(options.seed), options.size)
        return
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    sys.exit(stress(kinds, options.minutes, options.seed) > 0)


if __name__ == "__main__":
    main()
