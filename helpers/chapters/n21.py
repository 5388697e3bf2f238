"""The recorded runs, the batch loop, the figure, the exercise and the prediction of notebook 21.

The runs compare a prompt's reply without other prompts with its reply in a batch. The results depend on the
processor. Those of one processor are stored in same_prompt.json; `python -m tools same_prompt` writes it.
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
from helpers.model.generate import next_token_logits
from helpers.model.transformer import Transformer
from helpers.recording.hf import load_hf_model, watch
from helpers.recording.model import record_model
from helpers.trace import Trace, WordComparison, rounding_limit

RECORDED_RESULTS_FILE = Path(__file__).parent / "data" / "same_prompt.json"
BATCH_PROMPTS = (  # prompts of one batch: Carla's, of 6 words; Bram's, the longest, of 10 words; and six more
    "Carla writes from Toronto . Carla",
    "Bram lives in Kyiv . The afternoon in Kyiv was",
    "Emma writes from Cairo",
    "This is the diary of Chen from Oslo",
    "It was",
    "Leo lives in Rome",
    "Layla writes from Lisbon . Layla swam in",
    "This is the diary of Aisha from Beirut",
)


def first_difference_index(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Return the index of the first token at which two replies differ, or None if they are identical.

    Raises:
        ValueError: one reply is longer than the other and begins with the same tokens.
    """
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def mark_first_difference(replies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return two replies as lines of text. The first word that differs is in square brackets.

    Only the words around the difference are shown. If there is no difference, all words are shown.

    Args:
        replies: maps the name of each of the two replies to its words.
    """
    other, lines = first_difference_index(*replies.values()), []
    for name, words in replies.items():
        if other is not None:
            before, after = words[max(other - 1, 0) : other], words[other + 1 : other + 6]
            words = ["…", *before, f"[{words[other]}]", *after]
        lines += [f"{name}:", f"  {' '.join(words)}"]
    return lines


def load_recorded_results() -> dict[str, Any]:
    """Return the results in same_prompt.json.

    `tools/same_prompt.py` recorded them: the replies to Carla's prompt, the comparisons of three pairs of
    runs, and the replies to 1,000 diaries.
    """
    found: dict[str, Any] = json.loads(RECORDED_RESULTS_FILE.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class RunComparison:
    """A comparison of two runs over the same words.

    Attributes:
        words: one comparison per word, with its margin and its largest difference between logits.
        rounding_limit: the largest difference between logits that rounding can cause.
    """

    words: list[WordComparison]
    rounding_limit: float


def load_run_comparisons() -> dict[str, RunComparison]:
    """Return the recorded comparisons of three pairs of runs, by the name of the pair.

    A name includes the number format of the runs, such as "B, float32".
    """
    return {
        name: RunComparison(
            [WordComparison(n, (a, b), margin, off) for n, (a, b, margin, off) in enumerate(one["places"])],
            rounding_limit(one["largest"], 4, name.split(", ")[1]),
        )
        for name, one in load_recorded_results()["pairs"].items()
    }


@dataclass(frozen=True)
class GreedyReply:
    """A reply that a model generated greedily.

    Attributes:
        tokens: ids of the n new tokens, each of which is the most probable at its position.
        logits: the logits from which the tokens were chosen, of shape (n, V), in float32.
    """

    tokens: list[int]
    logits: Tensor


def generate_batch(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n_tokens: int,
    forced_tokens: Sequence[int] = (),
    cache_class: type[PagedCache] = PagedCache,
) -> list[GreedyReply]:
    """Generate one reply per prompt in one batch. The replies do not stop at `<eos>`.

    Args:
        model: the model.
        prompts: token ids of each prompt. The prompts may have different lengths.
        n_tokens: number of tokens in each reply.
        forced_tokens: at least `n_tokens - 1` token ids. In the first sequence, the model processes them
            instead of its own choices, so that its logits can be compared with those of another run over the
            same tokens. If empty, no tokens are forced.
        cache_class: class of the cache.

    Returns:
        The replies. The tokens of the first reply are the model's own choices even if tokens are forced.
    """
    lengths = [*map(len, prompts)]
    T = max(lengths)
    cache = cache_class(model.config, len(prompts), T + n_tokens, dtype=model.embed_tokens.weight.dtype)
    ids = torch.tensor([[0] * (T - len(prompt)) + [*prompt] for prompt in prompts])
    with cache.ragged_pass(lengths):  # the tokens before each prompt are padding
        rows = [next_token_logits(model, ids, cache).float()]  # (B, V)
    for at in range(n_tokens - 1):
        ids = rows[-1].argmax(-1, keepdim=True)
        ids[0] = forced_tokens[at] if forced_tokens else ids[0]
        rows.append(next_token_logits(model, ids, cache).float())
    logits = torch.stack(rows, dim=1)  # (B, n, V)
    return [GreedyReply(one.argmax(-1).tolist(), one) for one in logits]


def responses_of_two_engines(prompt: str, max_new_tokens: int = 24) -> list[dict[str, Any]]:
    """Return the responses of two servers: one with this project's engine, and one with `transformers`.

    The second server is forced to give the same words as the first.

    Args:
        prompt: the prompt.
        max_new_tokens: maximum number of words in the reply.

    Returns:
        Two responses in the form of `chat_completion_logprobs`. That of this project's engine is the first.
    """
    model, tokenizer = shipped.load_shipped()
    ours = record_model(
        model, prompt, tokenizer, max_new_tokens=max_new_tokens, training=False, uncached=False
    )
    [one] = ours.sequences
    theirs = load_hf_model(shipped.FOLDER)
    reply = [token.id or 0 for token in one.tokens[one.prompt :]]
    return [*map(chat_completion_logprobs, (ours, watch(theirs, tokenizer, prompt, reply=reply)))]


def chat_completion_logprobs(trace: Trace) -> dict[str, Any]:
    """Return a recorded run in the form in which an OpenAI-compatible server returns `top_logprobs`."""
    content = []
    for out in (out for event in trace.runs[0].steps for out in event.parts[0].out):
        top = [{"token": word, "logprob": math.log(share)} for word, _, share in out.top]
        content.append({"token": trace.sequences[0].tokens[out.chosen].text, "top_logprobs": top})
    return {"object": "chat.completion", "choices": [{"logprobs": {"content": content}}]}


def logits_on_bfloat16_axis(words: Sequence[str], logits_by_run: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the logits of two words on one axis per run. Each value that bfloat16 can represent has a tick.

    Args:
        words: the two words.
        logits_by_run: maps the name of each run to the logits of the two words in it.
    """
    logits = [logit for run in logits_by_run.values() for logit in run]
    gap = 2.0 ** (math.floor(math.log2(max(map(abs, logits)))) - 7)
    low, high = min(logits) - gap, max(logits) + gap

    def draw(sheet: Sheet) -> None:
        left, right, y = 40.0, sheet.width - 40, 20.0
        unit = (right - left) / (high - low)
        for word, x, colour in zip(words, (18.0, 138.0), ("query", "generated"), strict=True):
            sheet.disc(x + 6, y, 6, colour)
            sheet.text(x + 20, y, word)
        for name, both in logits_by_run.items():
            y += 30
            sheet.note(18, y, name)
            y += 30
            sheet.line((left, y), (right, y), colour="line", width=1)
            for n in range(round((high - low) / gap) + 1):
                x = left + unit * gap * n
                sheet.line((x, y - 5), (x, y + 5), colour="soft", width=1)
                if name == [*logits_by_run][-1]:
                    sheet.note(x, y + 24, f"{low + gap * n:g}", at="center")
            for logit, dy, colour in zip(both, (-7, 7), ("query", "generated"), strict=True):
                sheet.disc(left + unit * (logit - low), y + dy, 6, colour)

    sentence = "; ".join(
        f"{name} {' and '.join(f'{x:g}' for x in run)}" for name, run in logits_by_run.items()
    )
    return Picture(
        draw, f"Logits of {printable(words[0])} and {printable(words[1])} in bfloat16: {sentence}."
    )


def top_two_margin(logits: Sequence[float]) -> float:
    """Return the difference between the largest logit and the second largest."""
    last, best = sorted(logits)[-2:]
    return best - last


may_change = Exercise(
    name="may_change",
    todo="let may_change say whether another word can be chosen.",
    cases=[
        *[([10.3125, 10.25, 2.0], 0.0625), ([10.0, 9.9, 1.0], 0.06), ([10.0, 9.5, 1.0], 0.06)],
        *[([9.625, 3.0, 9.625], 0.0625), ([1.0, 5.0, 4.75], 0.2), ([8.0, 7.5, 7.4], 0.1)],
        *[([4.0, 1.0, 3.99], 0.000001), ([10.125, 10.0, 2.0], 0.0625)],
    ],
    right_answer=lambda logits, difference: top_two_margin(logits) <= 2 * difference,
    wrong_answers=[
        "both words may move: the first down and the second up, by the difference each.",
        lambda logits, difference: top_two_margin(logits) <= difference,
        "not only an exact tie: it is enough if the two can move towards each other until they are equal.",
        lambda logits, difference: top_two_margin(logits) == 0,
        "compare the largest logit with the second largest, wherever they are in the list.",
        lambda logits, difference: abs(logits[0] - logits[1]) <= 2 * difference,
        lambda logits, difference: max(logits) - min(logits) <= 2 * difference,
        "the wrong way round: a large margin is safe.",
        lambda logits, difference: top_two_margin(logits) > 2 * difference,
    ],
    success="a margin of 0.1 is too small where each logit may be 0.06 off, and a margin of 0.5 is not.",
)


def check_suspect_guess(guess: Any) -> Guess:
    """Compare a guess with the name of the pair of runs of which one has a bug: "A", "B" or "C"."""
    why = "Its differences are thousands of times what rounding makes in float32."
    return Guess(guess, "B", why, options=["A", "B", "C"])
