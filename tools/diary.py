"""Record the diary that the main page and the notebooks show: `python -m tools diary` (a few seconds).

Writes two files to helpers/recording: the trace of the model's reply, diary.json, and logits and attention
weights, diary_lines.json. A test compares these files with the model's current output.
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
    """Run the shipped model on PROMPT, once with the KV cache and once without it, and return the trace.

    Each of the two recorded runs begins with a training pass.
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
    """Run the recorded diary, without its last word, in one pass, and return the logits of this pass.

    The result also contains a reply to PROMPT for each of OTHER_SAMPLINGS, and the name head's attention
    weights for NAMED_TEXTS; see `DiaryLogits`.
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
    """A text with the next word, which the model predicts, and one attention weight per word before it."""

    text: str
    weights: list[float]


def name_head_weights(model: Transformer, tokenizer: Tokenizer, text: str) -> TextAndWeights:
    """Return how much the last word of a text attends to each word, in the head that finds names.

    The attention weights are rounded to three decimals. The returned text includes the word that the model
    predicts.
    """
    trace = record_model(model, text, tokenizer, max_new_tokens=1, training=False, recorded=[(0, 2)])
    words = [token.text for token in trace.sequences[0].tokens]
    weights = trace.attention_weights(len(words) - 2, layer=0, head=2)
    return TextAndWeights(" ".join(words), [round(float(weight), 3) for weight in weights])


def main() -> None:
    """Write the trace and the logits to their two files, and print the paths."""
    argument_parser(__doc__).parse_args()
    trace = record_diary()
    trace.save(TRACE_PATH)
    lines = record_logits(trace)
    packed = base64.b64encode((1000 * lines.logits).round().astype("<i2").tobytes()).decode()  # thousandths
    whole = json.dumps(vars(lines) | {"logits": packed}, separators=(",", ":"))
    LOGITS_PATH.write_text(whole + "\n", encoding="utf-8")
    for path in (TRACE_PATH, LOGITS_PATH):
        print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
