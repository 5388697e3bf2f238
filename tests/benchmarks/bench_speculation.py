"""Speculation: words a pass and speed-up at k = 1 … 8, beside `transformers`.

    python -m tests.benchmarks.bench_speculation             # about four minutes
    python -m tests.benchmarks.bench_speculation --diaries 4 # fewer diaries

The shipped model, greedy, 40 tokens behind the first 12 words of held-out diaries, the model as it is and its
fast twin. Drafts by look-up in the text and by the model's first layer; theirs by `prompt_lookup_num_tokens`
and by an assistant of one layer with our weights. All texts must be those of `generate`, or it stops. A
speed-up is over word by word on the same path. Not part of the test run.
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
    """Return how we write a reply."""

    def write(prompt: Text, k: int) -> tuple[Text, int]:
        if k == 0:
            return list(generate(model, prompt, NEW)), NEW
        reply = speculate(model, prompt, NEW, drafter, k)
        return list(reply), len(reply.rounds)

    return write


def their_way(plain: Transformer, assisted: bool) -> Way:
    """Return how `transformers` writes a reply."""
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
    """Return words a pass at each k, the prefill and its word aside; SystemExit where a text is another."""
    row = [name]
    for k in (0, *KS):
        output = [way(prompt, k) for prompt in prompts]
        if wrong := sum(text != reply for (text, _), reply in zip(output, replies, strict=True)):
            raise SystemExit(f"{name}, k = {k}: {wrong} of {len(prompts)} texts differ from generate's")
        row.append(f"{(NEW - 1) * len(prompts) / (sum(n for _, n in output) - len(prompts)):.2f}")
    return row


def seconds_by_k(ways: Mapping[str, Way], prompts: list[Text], turns: int) -> dict[str, list[float]]:
    """Let all write the replies in turns, at each k; return seconds, word by word first."""

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
