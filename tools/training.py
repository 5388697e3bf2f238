"""Record when a head learns to attend to the name: `python -m tools training` (five minutes).

Trains the shipped model from scratch as train.py does, records its state every 25 batches, and stops after
600 batches. The records are written to helpers/chapters/data/training.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from statistics import fmean

import torch
from torch import Tensor

from helpers.chapters import n08
from helpers.model import evaluate, shipped
from helpers.model.contributions import NameContributions, name_contributions
from helpers.model.probe import without_heads
from helpers.model.train import batches, next_token_loss, train
from helpers.model.transformer import Transformer
from helpers.recording.model import record_model
from helpers.tokenizer import Tokenizer
from tools.launch import argument_parser
from tools.train import STEPS

RECORDED_AFTER, NAME = tuple(range(25, 601, 25)), "Mia"


class SeenEnoughError(Exception):
    """Raised to stop training after the last batch that is recorded."""


def measure_attention_to_name(model: Transformer, tokenizer: Tokenizer, n_batches: int) -> n08.TrainingRecord:
    """Measure how well the model predicts the name after `by` at this stage of training.

    The record has the attention weight of the name, its probability, the contributions to its logit with the
    name head on and off, the number of held-out diaries, out of 50, that the model signs correctly, the mean
    loss of their names, and the mean loss over fresh texts.

    Args:
        model: the model, in training.
        tokenizer: the model's tokenizer.
        n_batches: number of batches on which the model has been trained.
    """
    read, diaries = shipped.DIARY.split(), evaluate.held_out_diaries(50, seed=5, min_quiet_words=12)
    run = record_model(model, shipped.DIARY, tokenizer, max_new_tokens=1, training=False, uncached=False)
    weights = run.attention_weights(len(read) - 1, *shipped.NAME_HEAD)
    words = dict(evaluate.next_words(model, tokenizer, shipped.DIARY, n=tokenizer.vocab_size))
    predictions = [evaluate.next_words(model, tokenizer, one.prompt, tokenizer.vocab_size) for one in diaries]
    fresh = next(batches(tokenizer, seed=1000, batch=64))
    with torch.no_grad():
        loss = next_token_loss(model, fresh).item()
    off = without_heads(model, [shipped.NAME_HEAD])
    return n08.TrainingRecord(
        batches=n_batches,
        name_weight=round(float(sum(weights[n] for n, word in enumerate(read) if word == NAME)), 3),
        probability=round(words[NAME], 3),
        n_signed_right=sum(words[0][0] == one.name for words, one in zip(predictions, diaries, strict=True)),
        loss=round(loss, 3),
        name_loss=round(
            fmean(-math.log(dict(words)[one.name]) for words, one in zip(predictions, diaries, strict=True)),
            3,
        ),
        contributions=round_contributions(name_contributions(model, tokenizer, shipped.DIARY, NAME)),
        contributions_head_off=round_contributions(name_contributions(off, tokenizer, shipped.DIARY, NAME)),
    )


def round_contributions(bars: NameContributions) -> NameContributions:
    """Return the contributions with each value rounded to two decimals."""
    return bars._replace(by_part={part: round(value, 2) for part, value in bars.by_part.items()})


def main() -> None:
    """Train the model, measure it before each batch in RECORDED_AFTER, and write the records as JSON."""
    argument_parser(__doc__).parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer, model, seen = Tokenizer.from_words(shipped.VOCABULARY), Transformer(shipped.CONFIG), []

    def watched() -> Iterator[Tensor]:
        for n, texts in enumerate(batches(tokenizer, 0)):
            if n in RECORDED_AFTER:
                model.eval()
                seen.append(measure_attention_to_name(model, tokenizer, n)._asdict())
                model.train()
                print(seen[-1])
            if n == RECORDED_AFTER[-1]:
                raise SeenEnoughError
            yield texts

    with suppress(SeenEnoughError):
        train(model, watched(), STEPS, progress_bar=False)
    lines = ",\n".join(json.dumps(one) for one in seen)
    n08.TRAINING_RECORDS_FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
