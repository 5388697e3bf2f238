"""Serving many: our engine, plain and fast, beside `transformers`' continuous batching on the same requests.

    python -m tests.benchmarks.bench_serving                  # both models, some minutes
    python -m tests.benchmarks.bench_serving --models shipped

Greedy, float32, the same weights and requests for all, prompts of 16 to 64 tokens, replies of 32. Medians of
runs that took turns, on a machine that should be idle. A second table has what pages cost. Not part of the
test run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import transformers
from transformers.generation import ContinuousBatchingConfig

from helpers.model.cache import PagedCache, StaticCache
from helpers.model.fast import speed_up
from helpers.model.generate import decode_step, prefill
from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine
from helpers.timing import seconds_per_call, time_in_turns
from tests.benchmarks import common

NEW, BATCHES, PAGE, POOL = 32, (1, 8, 32), 16, 256
Prompts = list[list[int]]


def prompts_of(model: Transformer, n: int) -> Prompts:
    """Return n prompts from a seed, of unequal length."""
    rng, V = random.Random(0), model.config.vocab_size
    return [[rng.randrange(1, V) for _ in range(rng.randint(16, 64))] for _ in range(n)]


def replies_of(model: Transformer, slots: int, prompts: Prompts) -> Prompts:
    """Let our engine answer; nothing ends early."""
    engine = Engine(model, slots, n_pages=POOL, page_size=PAGE, eos_ids=())
    for n, prompt in enumerate(prompts):
        engine.add(n, prompt, NEW)
    replies = engine.run_all()
    return [replies[n] for n in range(len(prompts))]


def theirs(model: Any, slots: int, prompts: Prompts) -> Prompts:
    """Let `transformers` answer, with the same pages and slots; its manager is kept from call to call."""
    config = ContinuousBatchingConfig(
        page_size=PAGE, num_blocks=POOL, max_batch_tokens=2048, max_requests_per_batch=slots
    )
    greedy = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    output = model.generate_batch(prompts, greedy, config, warmup=False, persistent_manager=True)
    return [one.generated_tokens for one in output.values()]


def bench_throughput(name: str, model: Transformer, turns: int) -> None:
    """Print tokens a second by batch, and how many replies are the same, token for token."""
    other = common.theirs_of(model)
    models = {
        "plain": model,
        "fast, 32 bits": speed_up(model, bits=32),
        "fast, 8 bits": speed_up(model, bits=8),
    }
    rows: dict[str, list[str]] = {way: [way] for way in [*models, "transformers"]}
    for slots in BATCHES:
        prompts = prompts_of(model, slots)
        ways: dict[str, Callable[[], Prompts]] = {
            way: partial(replies_of, its, slots, prompts) for way, its in models.items()
        }
        ways["transformers"] = partial(theirs, other, slots, prompts)
        output = {way: run() for way, run in ways.items()}  # which warms up, too
        seconds = [[seconds_per_call(run) for run in ways.values()] for _ in range(turns)]
        for (way, replies), median in zip(output.items(), np.median(seconds, axis=0), strict=True):
            same = sum(a == b for a, b in zip(replies, output["plain"], strict=True))
            rows[way].append(f"{slots * NEW / median:,.0f} ({same} same)")
        other.destroy_cached_continuous_batching_manager()
    heads = ["tokens a second", *(f"{n} at once" for n in BATCHES)]
    common.table(name, heads, list(rows.values()))


def step_of(model: Transformer, cache: Any) -> Callable[[], Any]:
    """Return a decode step behind 128 tokens, to be called again and again."""
    prefill(model, [1] * 128, cache)

    def step() -> None:
        cache.truncate(128)
        decode_step(model, [1], cache)

    return step


def bench_pages(name: str, model: Transformer, turns: int) -> None:
    """Print a token's time over pages as a share of that over rows laid out, batch 1."""
    rows = []
    for way, its in {"plain": model, "fast": speed_up(model)}.items():
        caches = {kind.__name__: kind(model.config, 1, 256) for kind in (StaticCache, PagedCache)}
        timings = time_in_turns({kind: step_of(its, cache) for kind, cache in caches.items()}, 3 * turns)
        laid_out, pages = (1000 * timing.best for timing in timings.values())
        rows.append([way, f"{laid_out:.2f}", f"{pages:.2f}", f"{pages / laid_out:.2f}"])
    common.table(f"{name}: ms a token, batch 1", ["", "laid out", "pages", "pages / laid out"], rows)


def main() -> None:
    models = {"nargs": "+", "choices": ("shipped", "16M"), "default": ["shipped", "16M"]}
    options = common.options(__doc__, turns=5, models=models)
    for name in options.models:
        model = common.model_of(name)
        bench_throughput(name, model, options.turns)
        bench_pages(name, model, options.turns)


if __name__ == "__main__":
    main()
