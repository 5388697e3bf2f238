"""Train the shipped model from scratch: `python -m tools train` (under 20 minutes on two cores).

The model is trained on weather diaries. The command prints what the model has learned, and writes four files
to `helpers/weights/`: config.json, model.safetensors, tokenizer.json, and the model file for web pages (see
halve.py).

`--variant mqa` trains another of `shipped.VARIANTS`, and writes its config and weights to a separate folder.
All variants have the same tokenizer. `--variant state --begin gqa` initializes the weights that both variants
have with those of the trained gqa variant.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import torch

from helpers.model import evaluate, shipped
from helpers.model.cache import StateCache, WindowCache
from helpers.model.load import save
from helpers.model.model_classes import make_model
from helpers.model.state import StateTransformer
from helpers.model.train import batches, train
from helpers.model.transformer import Transformer
from helpers.tokenizer import FILE, Tokenizer
from tools import halve, launch

STEPS = 2400
DIARIES = 200  # for the report


def print_report(model: Transformer, tokenizer: Tokenizer) -> None:
    """Print the most probable next words of two prompts, and the share of diaries that are signed correctly.

    The share is printed for two sets of held-out diaries. In the first set, the gap between the name and the
    signature has any length. In the second set, it has more than 64 words. If the model supports a window
    cache, the share with a window of 16 tokens is also printed.
    """
    for prompt in ("Today weather is so", "The soup is so"):
        words = evaluate.next_words(model, tokenizer, prompt)
        print(f"{prompt} →", ", ".join(f"{word} {p:.3f}" for word, p in words))
    any_gap = evaluate.held_out_diaries(DIARIES, seed=1)
    long_gap = evaluate.held_out_diaries(DIARIES, seed=2, min_quiet_words=64)
    for name, diaries in {"any": any_gap, "over 64": long_gap}.items():
        share = evaluate.signature_accuracy(model, tokenizer, diaries, StateCache)
        if isinstance(model, StateTransformer):  # no window without KV entries in all layers
            print(f"signed right, gap {name}: {share:.1%}")
            continue
        windowed = evaluate.signature_accuracy(model, tokenizer, diaries, partial(WindowCache, window=16))
        print(f"signed right, gap {name}: {share:.1%}, last 16 tokens only: {windowed:.1%}")
    print(f"chance: {evaluate.CHANCE:.2%}")


def main(arguments: list[str] | None = None) -> None:
    """Train the model, print the report, and write the model's files."""
    parser = launch.argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", choices=shipped.VARIANTS, default="gqa")
    parser.add_argument("--begin", choices=shipped.VARIANTS, help="begin with this variant's weights")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    folder = options.folder or shipped.weights_folder(options.variant)
    torch.manual_seed(options.seed)
    # One thread: the order of sums is the same on any machine, and two threads on busy cores were slower.
    torch.set_num_threads(1)
    tokenizer, model = Tokenizer.from_words(shipped.VOCABULARY), make_model(shipped.VARIANTS[options.variant])
    if options.begin:
        weights = shipped.load_shipped(options.begin)[0].state_dict()
        model.load_state_dict(weights, strict=False)  # all weights that both models have
    start = time.perf_counter()
    losses = train(model, batches(tokenizer, options.seed), options.steps)
    last = sum(losses[-100:]) / len(losses[-100:])
    print(f"{options.steps} steps in {time.perf_counter() - start:.0f} s, loss {losses[0]:.2f} → {last:.3f}")
    print_report(model, tokenizer)
    save(model, folder)
    if options.variant == "gqa":
        text = json.dumps(json.loads(tokenizer.library.to_str()), indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")
        halve.write_model_file(folder)
