"""Measure tokens per pass and speed-up of speculative decoding, and compare them with `transformers`.

    python -m tests.benchmarks.bench_speculation             # about four minutes
    python -m tests.benchmarks.bench_speculation --diaries 4 # fewer diaries

The shipped model and its fast version continue the first 12 words of held-out diaries by 40 tokens, with
greedy decoding. Each round drafts up to k tokens, for k = 1 … 8. This project drafts by prompt look-up or
with the model's first layer. `transformers` drafts with `prompt_lookup_num_tokens`, or with an assistant
model that has one layer with the same weights. All replies must be equal to those of `generate`; otherwise
the benchmark stops. The speed-up is relative to the same model without speculation. pytest does not run this
benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from helpers.model import shipped
from helpers.model.evaluate import held_out_diaries
from helpers.model.fast import speed_up
from helpers.model.generate import generate
from helpers.model.speculate import Drafter, EarlyExit, PromptLookup, speculate
from helpers.model.transformer import Transformer
from helpers.timing import time_in_turns
from tests.benchmarks import common

KS, NEW = range(1, 9), 40
Text = list[int]
Way = Callable[[Text, int], tuple[Text, int]]  # a prompt and k (0: word by word) → the reply, and its passes


def our_way(model: Transformer, drafter: Drafter) -> Way:
    """Return a function that generates a reply with this project's model; see `Way`."""

    def write(prompt: Text, k: int) -> tuple[Text, int]:
        if k == 0:
            return list(generate(model, prompt, NEW)), NEW
        reply = speculate(model, prompt, NEW, drafter, k)
        return list(reply), len(reply.rounds)

    return write


def their_way(plain: Transformer, assisted: bool) -> Way:
    """Return a function that generates a reply with `transformers`; see `Way`.

    If `assisted` is true, an assistant model with one layer drafts tokens. Otherwise prompt look-up does.
    """
    model, draft = common.theirs_of(plain), None
    if assisted:
        draft = common.theirs_of(plain, num_hidden_layers=1)
        draft.generation_config.assistant_confidence_threshold = 0.0  # it would draft fewer where unsure
        draft.generation_config.num_assistant_tokens_schedule = "constant"
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))

    def write(prompt: Text, k: int) -> tuple[Text, int]:
        ways: dict[str, Any] = {}
        if k and draft is not None:
            draft.generation_config.num_assistant_tokens = k
            ways = {"assistant_model": draft}
        elif k:
            ways = {"prompt_lookup_num_tokens": k}
        passes.clear()
        out = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, **ways)
        return out[0, len(prompt) :].tolist(), len(passes)

    return write


def words_a_pass(name: str, way: Way, prompts: list[Text], replies: list[Text]) -> list[str]:
    """Return a table row: `name`, then the tokens per pass without speculation and for each k.

    The prefill and the token that it gives are left out of the average.

    Raises:
        SystemExit: a reply differs from the one in `replies`.
    """
    row = [name]
    for k in (0, *KS):
        output = [way(prompt, k) for prompt in prompts]
        if wrong := sum(text != reply for (text, _), reply in zip(output, replies, strict=True)):
            raise SystemExit(f"{name}, k = {k}: {wrong} of {len(prompts)} texts differ from generate's")
        row.append(f"{(NEW - 1) * len(prompts) / (sum(n for _, n in output) - len(prompts)):.2f}")
    return row


def seconds_by_k(ways: Mapping[str, Way], prompts: list[Text], turns: int) -> dict[str, list[float]]:
    """Run all prompts with each way and each k, in turns, and return the median times in seconds.

    There is a list for each way, by its name. Its first time is without speculation, and the others are for
    the values of k.
    """

    def all_of(way: Way, k: int) -> None:
        for prompt in prompts:
            way(prompt, k)

    tasks = {f"{name} {k}": partial(all_of, way, k) for name, way in ways.items() for k in (0, *KS)}
    times = time_in_turns(tasks, turns=turns)
    return {name: [times[f"{name} {k}"].median for k in (0, *KS)] for name in ways}


def main() -> None:
    options = common.options(__doc__, turns=5, diaries=10)
    model, tokenizer = shipped.load_shipped()
    prompts = [tokenizer.encode(" ".join(d.words[:12])) for d in held_out_diaries(options.diaries, seed=0)]
    replies = [list(generate(model, prompt, NEW)) for prompt in prompts]
    fast = speed_up(model, threads=1)
    ways = {
        "plain, look-up": our_way(model, PromptLookup()),
        "plain, first layer": our_way(model, EarlyExit(model, 1)),
        "fast, look-up": our_way(fast, PromptLookup()),
        "fast, first layer": our_way(fast, EarlyExit(fast, 1)),
        "transformers, look-up": their_way(model, assisted=False),
        "transformers, one layer": their_way(model, assisted=True),
    }
    heads = ["", "word by word", *(f"k = {k}" for k in KS)]
    rows = [words_a_pass(name, way, prompts, replies) for name, way in ways.items()]
    common.table(f"Words a pass, {len(prompts)} texts, the same in all ways", heads, rows)
    seconds = seconds_by_k(ways, prompts, options.turns)
    rows = [[name, *(f"{s[0] / x:.2f}" for x in s)] for name, s in seconds.items()]
    common.table("Times as fast as word by word", heads, rows)
    rows = [[name, *(f"{NEW * len(prompts) / x:.0f}" for x in s)] for name, s in seconds.items()]
    common.table("Words a second", heads, rows)


if __name__ == "__main__":
    main()
