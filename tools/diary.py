"""Record the diary that the page and the notebooks show: `python -m tools diary` (a few seconds).

Writes diary.json and diary_lines.json to helpers/recording. A test compares them with the model's current
output.
"""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

import torch

from helpers.model import shipped
from helpers.model.generate import generate
from helpers.model.transformer import Transformer
from helpers.recording.diary import LOGITS_PATH, TRACE_PATH, DiaryLogits
from helpers.recording.model import record_model
from helpers.sampling import GREEDY, Sampling
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace
from tools.launch import argument_parser

PROMPT = "Mia writes from Oslo . Monday is sunny in Oslo . Mia swam in the lake . Today weather is so nice ."
WORDS = 24
OTHER_SAMPLINGS = [
    GREEDY,
    *(Sampling(float(temperature), seed=4) for temperature in (1, 2, 3)),
    Sampling(2.0, top_p=0.9, seed=4),
]
NAMED_TEXTS = [  # a name at the beginning, in the middle, late
    "Ben writes from Dublin . Today weather is so nice . Signed by",
    "A fox slept in the park . Noah likes the soup in Rome . Signed by",
    "Friday was rainy . The sea is so calm . Uma lives in Rome . Signed by",
]
SEED = 49  # with this seed, the 24th word is the name; Mia in Oslo was not in training


def record_diary() -> Trace:
    """Record how the shipped model continues the diary, with and without the cache.

    Each run begins with a training pass.
    """
    model, tokenizer = shipped.load_shipped()
    name = "weather diaries"
    trace = record_model(
        model, PROMPT, tokenizer, max_new_tokens=WORDS, sampling=Sampling(1.0, seed=SEED), name=name
    )
    for run in trace.runs:
        for step in run.passes:
            step.parts[0].contexts = {}  # they are most of the file, and no view shows 32 numbers
    return trace


@torch.inference_mode()
def record_logits(trace: Trace) -> DiaryLogits:
    """Run the recorded text, without its last word, in one pass, and return its logits.

    The result also has other replies to the same prompt, and attention weights in other texts; see
    `DiaryLogits`.
    """
    model, tokenizer = shipped.load_shipped()
    ids = [token.id for token in trace.sequences[0].tokens]
    logits = model(torch.tensor([ids[:-1]]))[0].numpy()
    vocabulary = [tokenizer.decode([n]) for n in range(tokenizer.vocab_size)]
    replies = {}
    for sampling in OTHER_SAMPLINGS:
        output_ids = generate(model, torch.tensor([tokenizer.encode(PROMPT)]), 16, sampling=sampling)
        replies[str(sampling)] = tokenizer.decode(list(output_ids))
    looks = dict(name_head_weights(model, tokenizer, text) for text in NAMED_TEXTS)
    return DiaryLogits(
        [token.text for token in trace.sequences[0].tokens], vocabulary, logits, replies, looks
    )


class TextAndWeights(NamedTuple):
    """A text with its next word, and an attention weight for each word except the next one."""

    text: str
    weights: list[float]


def name_head_weights(model: Transformer, tokenizer: Tokenizer, text: str) -> TextAndWeights:
    """Return the attention weights of a text's last word in the head that finds names.

    The weights are rounded to three decimals.
    """
    trace = record_model(model, text, tokenizer, max_new_tokens=1, training=False, recorded=[(0, 2)])
    words = [token.text for token in trace.sequences[0].tokens]
    weights = trace.attention_weights(len(words) - 2, layer=0, head=2)
    return TextAndWeights(" ".join(words), [round(float(weight), 3) for weight in weights])


def main() -> None:
    """Record both files, and print their paths."""
    argument_parser(__doc__).parse_args()
    trace = record_diary()
    trace.save(TRACE_PATH)
    lines = record_logits(trace)
    packed = base64.b64encode((1000 * lines.logits).round().astype("<i2").tobytes()).decode()  # thousandths
    whole = json.dumps(vars(lines) | {"logits": packed}, separators=(",", ":"))
    LOGITS_PATH.write_text(whole + "\n", encoding="utf-8")
    for path in (TRACE_PATH, LOGITS_PATH):
        print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
