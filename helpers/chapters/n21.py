"""Notebook 21, the same prompt: a prompt answered alone and in a batch, figures, and the exercises.

same_prompt.json stores the results of one processor. To write it, run `python -m tools same_prompt`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import printable
from helpers.model import shipped
from helpers.model.cache import PagedCache
from helpers.model.generate import run
from helpers.model.transformer import Transformer
from helpers.recording.hf import load_hf_model, watch
from helpers.recording.model import record_model
from helpers.trace import Trace, WordComparison, rounding_limit

RECORDED = Path(__file__).parent / "data" / "same_prompt.json"
TEXTS = (  # prompts of one batch: Carla's, of 6 words; Bram's, the longest, of 10 words; and six more
    "Carla writes from Toronto . Carla",
    "Bram lives in Kyiv . The afternoon in Kyiv was",
    "Emma writes from Cairo",
    "This is the diary of Chen from Oslo",
    "It was",
    "Leo lives in Rome",
    "Layla writes from Lisbon . Layla swam in",
    "This is the diary of Aisha from Beirut",
)


@dataclass(frozen=True)
class Reply:
    """A reply that a model generated greedily.

    Attributes:
        tokens: ids of the n new tokens, each the most probable at its position.
        logits: the logits from which each was chosen, (n, V), in float32.
    """

    tokens: list[int]
    logits: Tensor


def answer(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n: int,
    forced: Sequence[int] = (),
    kind: type[PagedCache] = PagedCache,
) -> list[Reply]:
    """Answer prompts in one batch, each with n tokens, without stopping at `<eos>`.

    Args:
        model: the model.
        prompts: ids of each prompt; their lengths may differ.
        n: number of new tokens for each prompt.
        forced: at least n - 1 ids that the first reply continues with instead of the model's own choices, so
            that its logits can be compared with those of another run after the same words.
        kind: class of the cache.

    Returns:
        One reply for each prompt. The tokens of a forced reply are still the model's own choices.
    """
    lengths = [*map(len, prompts)]
    T = max(lengths)
    cache = kind(model.config, len(prompts), T + n, dtype=model.embed_tokens.weight.dtype)
    ids = torch.tensor([[0] * (T - len(prompt)) + [*prompt] for prompt in prompts])
    with cache.expect(lengths):  # tokens before these are padding
        rows = [run(model, ids, cache).float()]  # (B, V)
    for at in range(n - 1):
        ids = rows[-1].argmax(-1, keepdim=True)
        ids[0] = forced[at] if forced else ids[0]
        rows.append(run(model, ids, cache).float())
    logits = torch.stack(rows, dim=1)  # (B, n, V)
    return [Reply(one.argmax(-1).tolist(), one) for one in logits]


def differ(a: Reply, b: Reply) -> int:
    """Return the number of logits that differ between two replies of equal length."""
    return int((a.logits != b.logits).sum())


def first_other(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Return the index of the first token at which two replies differ, or None if they are identical.

    Raises:
        ValueError: one reply is a proper prefix of the other.
    """
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def marked(replies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return two replies as lines of text, with the first word that differs in square brackets.

    Only the words around the difference are shown; replies without a difference are shown in full.

    Args:
        replies: from the name of each of two replies to its words.
    """
    other, lines = first_other(*replies.values()), []
    for name, words in replies.items():
        if other is not None:
            before, after = words[max(other - 1, 0) : other], words[other + 1 : other + 6]
            words = ["…", *before, f"[{words[other]}]", *after]
        lines += [f"{name}:", f"  {' '.join(words)}"]
    return lines


def recorded() -> dict[str, Any]:
    """Return what `tools/same_prompt.py` recorded: Carla's replies, three pairs of runs, 1,000 diaries."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Pair:
    """A comparison of two runs over the same words.

    Attributes:
        places: the comparison at each word, with its margin and difference.
        line: the difference of logits above which rounding cannot be the cause.
    """

    places: list[WordComparison]
    line: float


def pairs() -> dict[str, Pair]:
    """Return the three recorded pairs of runs by name. Each name includes the number format of the runs."""
    return {
        name: Pair(
            [WordComparison(n, (a, b), margin, off) for n, (a, b, margin, off) in enumerate(one["places"])],
            rounding_limit(one["largest"], 4, name.split(", ")[1]),
        )
        for name, one in recorded()["pairs"].items()
    }


def two_engines(text: str, n: int = 24) -> list[dict[str, Any]]:
    """Return the responses of two servers, one with our engine and one with `transformers`.

    The second server is made to give the words that our engine gives.

    Args:
        text: the prompt.
        n: maximum number of words in the reply.

    Returns:
        Two responses with logprobs, as from `server_reply`: that of our engine first.
    """
    model, tokenizer = shipped.load()
    ours = record_model(model, text, tokenizer, max_new_tokens=n, training=False, uncached=False)
    [one] = ours.sequences
    theirs = load_hf_model(shipped.FOLDER)
    reply = [token.id or 0 for token in one.tokens[one.prompt :]]
    return [*map(server_reply, (ours, watch(theirs, tokenizer, text, reply=reply)))]


def server_reply(trace: Trace) -> dict[str, Any]:
    """Return the response of an OpenAI-compatible server, with `top_logprobs`, for a recorded run."""
    content = []
    for out in (out for event in trace.runs[0].steps for out in event.parts[0].out):
        top = [{"token": word, "logprob": math.log(share)} for word, _, share in out.top]
        content.append({"token": trace.sequences[0].tokens[out.chosen].text, "top_logprobs": top})
    return {"object": "chat.completion", "choices": [{"logprobs": {"content": content}}]}


def tie(words: Sequence[str], runs: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the logits of two words on an axis for each run, with a tick for each bfloat16 number.

    Args:
        words: the two words.
        runs: from the name of each run to the logits of the two words.
    """
    logits = [logit for run in runs.values() for logit in run]
    gap = 2.0 ** (math.floor(math.log2(max(map(abs, logits)))) - 7)
    low, high = min(logits) - gap, max(logits) + gap

    def draw(sheet: Sheet) -> None:
        left, right, y = 40.0, sheet.width - 40, 20.0
        unit = (right - left) / (high - low)
        for word, x, colour in zip(words, (18.0, 138.0), ("query", "generated"), strict=True):
            sheet.disc(x + 6, y, 6, colour)
            sheet.text(x + 20, y, word)
        for name, both in runs.items():
            y += 30
            sheet.note(18, y, name)
            y += 30
            sheet.line((left, y), (right, y), colour="line", width=1)
            for n in range(round((high - low) / gap) + 1):
                x = left + unit * gap * n
                sheet.line((x, y - 5), (x, y + 5), colour="soft", width=1)
                if name == [*runs][-1]:
                    sheet.note(x, y + 24, f"{low + gap * n:g}", at="center")
            for logit, dy, colour in zip(both, (-7, 7), ("query", "generated"), strict=True):
                sheet.disc(left + unit * (logit - low), y + dy, 6, colour)

    sentence = "; ".join(f"{name} {' and '.join(f'{x:g}' for x in run)}" for name, run in runs.items())
    return Picture(
        draw, f"Logits of {printable(words[0])} and {printable(words[1])} in bfloat16: {sentence}."
    )


def lead(logits: Sequence[float]) -> float:
    """Return the difference between the largest and the second largest logit."""
    last, best = sorted(logits)[-2:]
    return best - last


may_change = Exercise(
    name="may_change",
    todo="let may_change say whether another word can become the likeliest.",
    cases=[
        *[([10.3125, 10.25, 2.0], 0.0625), ([10.0, 9.9, 1.0], 0.06), ([10.0, 9.5, 1.0], 0.06)],
        *[([9.625, 3.0, 9.625], 0.0625), ([1.0, 5.0, 4.75], 0.2), ([8.0, 7.5, 7.4], 0.1)],
        *[([4.0, 1.0, 3.99], 0.000001), ([10.125, 10.0, 2.0], 0.0625)],
    ],
    right_answer=lambda logits, difference: lead(logits) <= 2 * difference,
    wrong_answers=[
        "both words may move: the first down and the second up, by the difference each.",
        lambda logits, difference: lead(logits) <= difference,
        "not only an exact tie: what is less than the two can move towards each other is enough.",
        lambda logits, difference: lead(logits) == 0,
        "it is the lead over the second likeliest that counts, wherever that stands in the list.",
        lambda logits, difference: abs(logits[0] - logits[1]) <= 2 * difference,
        lambda logits, difference: max(logits) - min(logits) <= 2 * difference,
        "the wrong way round: a large lead is safe.",
        lambda logits, difference: lead(logits) > 2 * difference,
    ],
    success="a lead of 0.1 is too small where each number may be 0.06 off, a lead of 0.5 is not.",
)


def suspect(guess: Any) -> Guess:
    """Compare a guess, "A", "B" or "C", with the name of the pair of runs of which one has a bug."""
    why = "Its differences are thousands of times what rounding makes in float32."
    return Guess(guess, "B", why, options=["A", "B", "C"])
