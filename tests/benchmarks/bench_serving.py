"""Compare the throughput of this project's engine with the continuous batching of `transformers`.

    python -m tests.benchmarks.bench_serving                  # both models, some minutes
    python -m tests.benchmarks.bench_serving --models shipped

The engine runs the taught model and its fast versions. All use greedy decoding, the same weights and the same
requests, with prompts of 16 to 64 tokens and replies of 32 tokens. They run in turns, and the tables have
medians. The machine should be idle. A second table shows how much slower a decode step is with a paged cache.
pytest does not run this benchmark.
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
    """Return n random prompts of 16 to 64 tokens. They are the same in each call."""
    rng, V = random.Random(0), model.config.vocab_size
    return [[rng.randrange(1, V) for _ in range(rng.randint(16, 64))] for _ in range(n)]


def replies_of(model: Transformer, slots: int, prompts: Prompts) -> Prompts:
    """Run the prompts in this project's engine, and return the replies. No reply ends before NEW tokens."""
    engine = Engine(model, slots, n_pages=POOL, page_size=PAGE, eos_ids=())
    for n, prompt in enumerate(prompts):
        engine.add(n, prompt, NEW)
    replies = engine.run_all()
    return [replies[n] for n in range(len(prompts))]


def theirs(model: Any, slots: int, prompts: Prompts) -> Prompts:
    """Run the prompts in `transformers`, with the same pages and number of slots, and return the replies.

    Its batching manager is kept between calls.
    """
    config = ContinuousBatchingConfig(
        page_size=PAGE, num_blocks=POOL, max_batch_tokens=2048, max_requests_per_batch=slots
    )
    greedy = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    output = model.generate_batch(prompts, greedy, config, warmup=False, persistent_manager=True)
    return [one.generated_tokens for one in output.values()]


def bench_throughput(name: str, model: Transformer, turns: int) -> None:
    """Print the tokens per second for each batch size, and how many replies equal the plain model's."""
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
    """Return a function that runs a decode step with 128 cached tokens. It can be called repeatedly."""
    prefill(model, [1] * 128, cache)

    def step() -> None:
        cache.truncate(128)
        decode_step(model, [1], cache)

    return step


def bench_pages(name: str, model: Transformer, turns: int) -> None:
    """Print the times of a decode step with a static and with a paged cache, and their ratio.

    The batch size is 1.
    """
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
