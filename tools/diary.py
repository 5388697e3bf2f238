"""Record the diary that the main page and the notebooks show: `python -m tools diary` (a few seconds).

Writes diary.json and name_head.json to helpers/recording. A test compares them with the model's current
output.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import torch

from helpers.model import shipped
from helpers.model.transformer import Transformer
from helpers.recording.diary import NAME_HEAD_PATH, TRACE_PATH, NameHead
from helpers.recording.model import record_model
from helpers.sampling import Sampling
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace
from tools.launch import argument_parser

PROMPT = "Mia writes from Oslo . Monday is sunny in Oslo . Mia swam in the lake . Today weather is so nice ."
WORDS = 24
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
def record_name_head() -> NameHead:
    """Run short texts, and return the attention weights of the head that finds names."""
    model, tokenizer = shipped.load_shipped()
    vocabulary = [tokenizer.decode([n]) for n in range(tokenizer.vocab_size)]
    return NameHead(vocabulary, dict(name_head_weights(model, tokenizer, text) for text in NAMED_TEXTS))


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
    whole = json.dumps(vars(record_name_head()), separators=(",", ":"))
    NAME_HEAD_PATH.write_text(whole + "\n", encoding="utf-8")
    for path in (TRACE_PATH, NAME_HEAD_PATH):
        print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
