"""This project's small model and its variants. Their trained weights are included in the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from helpers import corpus
from helpers.model import load as checkpoints
from helpers.model.config import LatentConfig, ModelConfig, StateConfig
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

FOLDER = Path(__file__).parent.parent / "weights"
NAME_HEAD = (0, 2)  # layer and head, from 0: the head that attends to names
DIARY = (  # the diary of notebook 00, up to its signature; the pair Mia and Oslo is not in training
    "Mia writes from Oslo . Monday is sunny in Oslo . Mia swam in the lake . Today weather is so nice . "
    "A fox slept in the park . Sunday was sunny . There was snow over the lake . Signed by"
)
VOCABULARY = corpus.vocabulary()
CONFIG = ModelConfig(
    n_layers=4,
    n_heads=4,
    n_kv_heads=2,
    head_dim=32,
    hidden_size=128,
    intermediate_size=352,
    vocab_size=len(VOCABULARY),
    max_seq_len=2048,  # 16 times what it was trained on: longer texts are for timing only
    tied=True,
    eos_ids=(VOCABULARY.index(corpus.EOS),),
)

VARIANTS = {  # the same except for what a token stores in the cache; trained on the same batches
    "gqa": CONFIG,
    "mha": replace(CONFIG, n_kv_heads=4),
    "mqa": replace(CONFIG, n_kv_heads=1),
    # The smallest sizes, of those tried, that learned to copy names and cities. After the same number of
    # steps, rank 16 with rope_dim 32 copied no city, nor did rank 32, 48 or 64 with rope_dim 16.
    "mla": LatentConfig(**vars(CONFIG) | {"n_kv_heads": 1, "rank": 24, "rope_dim": 32}),
    # Initialized with the weights of gqa, then trained for 800 steps (state) and 600 steps (hybrid):
    # `--variant state --begin gqa --steps 800`. When trained from random weights for 2,400 steps, state
    # signed 168 of 200 diaries correctly, and hybrid, which has entries in one layer, only 5.
    "state": StateConfig(**vars(CONFIG), state_layers=(0, 1, 2, 3)),
    "hybrid": StateConfig(**vars(CONFIG), state_layers=(1, 2, 3)),
}


def weights_folder(variant: str) -> Path:
    """Return the folder with a variant's weights. Raise KeyError if the variant is not in `VARIANTS`."""
    return FOLDER if VARIANTS[variant] is CONFIG else FOLDER / variant


class LoadedModel(NamedTuple):
    """A model with its weights loaded, and the tokenizer that belongs to it."""

    model: Transformer
    tokenizer: Tokenizer


def load_shipped(variant: str = "gqa") -> LoadedModel:
    """Load a variant of the trained model, and its tokenizer, from the package.

    `tools/train.py` wrote the weights. Raise KeyError if the variant is not in `VARIANTS`.
    """
    return LoadedModel(checkpoints.load(weights_folder(variant)), Tokenizer.from_words(VOCABULARY))
