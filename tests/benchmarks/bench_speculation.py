"""Speculation: tokens a pass and speed-up at k = 1 … 8, predicted and measured, ours beside `transformers`.

    python tests/benchmarks/bench_speculation.py             # about four minutes
    python tests/benchmarks/bench_speculation.py --diaries 4 # fewer diaries

The shipped model, greedy, 40 tokens behind the first 12 words of held-out diaries, the model as it is and its
fast twin. Drafts by look-up in the text and by the model's first layer; theirs by `prompt_lookup_num_tokens`
and by an assistant of one layer with our weights. All texts must be those of `generate`, or it stops. A
speed-up is over word by word on the same path. Not part of the test run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from helpers.measure import in_turns  # noqa: E402 - from the tree this file stands in
from helpers.model import shipped  # noqa: E402
from helpers.model.cache import StaticCache  # noqa: E402
from helpers.model.evaluate import held_out_diaries  # noqa: E402
from helpers.model.fast import speed_up  # noqa: E402
from helpers.model.generate import generate  # noqa: E402
from helpers.model.speculate import Drafter, EarlyExit, PromptLookup, Round, speculate  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.serve import trials  # noqa: E402
from tests.benchmarks import bench_model as base  # noqa: E402
from tests.benchmarks.bench_part1 import table  # noqa: E402

KS, NEW, CONTEXT = range(1, 9), 40, 32
Text = list[int]
Say = Callable[[Text, int], Text]  # a prompt and k (0: word by word) → the reply


def one_pass(model: Transformer, T: int) -> Callable[[], Any]:
    """Return a pass over T tokens behind CONTEXT others, to be called again and again."""
    cache, words = StaticCache(model.config, max_len=CONTEXT + T), torch.ones(1, CONTEXT, dtype=torch.int64)
    with torch.inference_mode():
        model(words, cache, last_only=True)

    @torch.inference_mode()
    def run() -> Any:
        cache.truncate(CONTEXT)
        return model(words[:, :T], cache)

    return run


def share_taken(rounds: list[Round]) -> float:
    """Return the share of judged drafts that were taken; a round without a draft counts as one refused."""
    judged = sum(one.n_accepted + (one.n_accepted < max(1, one.n_drafted)) for one in rounds)
    return sum(one.n_accepted for one in rounds) / max(1, judged)


def our_rounds(model: Transformer, drafter: Drafter, prompts: list[Text], k: int) -> list[Round]:
    """Return the rounds of all replies but their prefills."""
    result = [speculate(model, prompt, NEW, drafter, k) for prompt in prompts]
    return [one for reply in result if list(reply) for one in reply.rounds[1:]]


def predicted(model: Transformer, drafter: Drafter, shares: Mapping[int, float]) -> list[float]:
    """Return the speed-up for each k, from the shares taken and the price of passes."""
    tasks = {str(T): one_pass(model, T) for T in range(1, max(KS) + 2)}
    if isinstance(drafter, EarlyExit):
        tasks["draft"] = one_pass(drafter.first, 1)
    times = {name: timing.median for name, timing in in_turns(tasks, turns=7).items()}
    draft = times.get("draft", 0.0) / times["1"]
    words = {k: sum(shares[k] ** n for n in range(k + 1)) for k in KS}  # a pass; arXiv:2211.17192
    return [words[k] / (k * draft + times[str(k + 1)] / times["1"]) for k in KS]


def our_say(model: Transformer, drafter: Drafter) -> Say:
    """Return how we say a reply."""
    return lambda prompt, k: list(
        speculate(model, prompt, NEW, drafter, k) if k else generate(model, prompt, NEW)
    )


def their_say(folder: Path, assisted: bool) -> tuple[Say, list[int]]:
    """Return how `transformers` says a reply, and a list that grows with each pass of its model."""
    model, draft = base.theirs_of(folder), None
    if assisted:
        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        draft = load(folder, num_hidden_layers=1, dtype=torch.float32).eval()
        draft.generation_config.eos_token_id = None
        draft.generation_config.assistant_confidence_threshold = 0.0  # it would draft fewer where unsure
        draft.generation_config.num_assistant_tokens_schedule = "constant"
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))

    def say(prompt: Text, k: int) -> Text:
        ways: dict[str, Any] = {}
        if k and draft is not None:
            draft.generation_config.num_assistant_tokens = k
            ways = {"assistant_model": draft}
        elif k:
            ways = {"prompt_lookup_num_tokens": k}
        ids = torch.tensor([prompt])
        out = model.generate(ids, max_new_tokens=NEW, do_sample=False, **ways)
        return out[0, len(prompt) :].tolist()

    return say, passes


def check_texts(name: str, say: Say, prompts: list[Text], replies: list[Text]) -> None:
    """SystemExit unless it says each reply, at each k."""
    for k in (0, *KS):
        wrong = sum(say(prompt, k) != reply for prompt, reply in zip(prompts, replies, strict=True))
        if wrong:
            raise SystemExit(f"{name}, k = {k}: {wrong} of {len(prompts)} texts differ from generate's")


def measured(says: Mapping[str, Say], prompts: list[Text], turns: int) -> dict[str, list[float]]:
    """Let all say the replies in turns, at each k; return seconds, word by word first."""

    def all_of(say: Say, k: int) -> None:
        for prompt in prompts:
            say(prompt, k)

    tasks = {f"{name} {k}": partial(all_of, say, k) for name, say in says.items() for k in (0, *KS)}
    times = in_turns(tasks, turns=turns)
    return {name: [times[f"{name} {k}"].median for k in (0, *KS)] for name in says}


def served(model: Transformer, prompts: list[Text], turns: int = 5) -> None:
    """Print words a second of the engine with look-ups and without, at 1, 8 and 32 requests at once."""
    asked, lines = (prompts * 32)[:32], []
    for slots in (1, 8, 32):
        kinds: dict[str, PromptLookup | None] = {"word by word": None, "look-up, k = 4": PromptLookup()}
        runs = {
            name: [trials.throughput(model, asked, slots, kind) for _ in range(turns)]
            for name, kind in kinds.items()
        }
        output = [run[2] for its in runs.values() for run in its]
        if any(one != output[0] for one in output):
            raise SystemExit(f"{slots} at once: a reply differs with drafts")
        rates = [NEW * len(asked) / min(run[0] for run in its) for its in runs.values()]
        lines.append([str(slots), *(f"{rate:.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"])
    table("Engine, words a second", ["at once", "word by word", "look-up, k = 4", "times"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--diaries", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = shipped.load()
    prompts = [tokenizer.encode(" ".join(d.words[:12])) for d in held_out_diaries(options.diaries, seed=0)]
    replies = [list(generate(model, prompt, NEW)) for prompt in prompts]
    words = NEW * len(prompts)
    print(f"{words} words, {base.conditions()}, transformers {transformers.__version__}")
    fast = speed_up(model, threads=1)
    ours: dict[str, tuple[Transformer, Drafter]] = {
        "plain, look-up": (model, PromptLookup()),
        "plain, first layer": (model, EarlyExit(model, 1)),
        "fast, look-up": (fast, PromptLookup()),
        "fast, first layer": (fast, EarlyExit(fast, 1)),
    }
    says = {name: our_say(*its) for name, its in ours.items()}
    a_pass, foretold = [], []
    for name, (which, drafter) in ours.items():
        rounds = {k: our_rounds(which, drafter, prompts, k) for k in KS}
        a_pass.append([name, *(f"{(words - len(prompts)) / len(rounds[k]):.2f}" for k in KS)])
        shares = {k: share_taken(rounds[k]) for k in KS}
        foretold.append([name, *(f"{x:.2f}" for x in predicted(which, drafter, shares))])
    with base.folder_of("shipped") as folder:
        for name, assisted in (("transformers, look-up", False), ("transformers, one layer", True)):
            says[name], passes = their_say(folder, assisted)
            counts = []
            for k in KS:
                passes.clear()
                for prompt in prompts:
                    says[name](prompt, k)
                counts.append((words - len(prompts)) / (len(passes) - len(prompts)))
            a_pass.append([name, *(f"{x:.2f}" for x in counts)])
    for name, say in says.items():
        check_texts(name, say, prompts, replies)
    seconds = measured(says, prompts, options.turns)
    heads = ["", *(f"k = {k}" for k in KS)]
    table("Words a pass, the prefill and its word aside", heads, a_pass)
    table("Speed-up, predicted", heads, foretold)
    table("Speed-up, measured", heads, [[n, *(f"{s[0] / x:.2f}" for x in s[1:])] for n, s in seconds.items()])
    rows = [[name, *(f"{words / x:.0f}" for x in s)] for name, s in seconds.items()]
    table("Words a second", ["", "word by word", *heads[1:]], rows)
    served(model, prompts)
    print(f"\nAll {len(prompts)} texts of all ways are the same. Afterwards: {base.conditions()}")


if __name__ == "__main__":
    main()
