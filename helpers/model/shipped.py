"""The small model of this project and its variants: their sizes, and trained weights from the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers import corpus
from helpers.model import load as checkpoints
from helpers.model.config import LatentConfig, ModelConfig, StateConfig
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

FOLDER = Path(__file__).parent.parent / "weights"
FINDS_NAMES = (0, 2)  # layer and head, from 0
DIARY = (  # the one that notebook 00 shows, up to its signature; training never saw Mia with Oslo
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

VARIANTS = {  # alike but for what a token leaves in the cache; trained on the same batches
    "gqa": CONFIG,
    "mha": replace(CONFIG, n_kv_heads=4),
    "mqa": replace(CONFIG, n_kv_heads=1),
    # The fewest numbers, of those tried, that learned to copy names and cities. After as many steps 16 and 32
    # rotated ones copied no city, and neither did 32, 48 or 64 and 16 rotated ones.
    "mla": LatentConfig(**vars(CONFIG) | {"n_kv_heads": 1, "rank": 24, "rope_dim": 32}),
    # Begun with the weights of gqa, 800 and 600 steps: `--variant state --begin gqa --steps 800`. From
    # nothing the first signed 168 of 200 diaries after 2,400 steps, the second, with rows in a layer, 5.
    "state": StateConfig(**vars(CONFIG), state_layers=(0, 1, 2, 3)),
    "hybrid": StateConfig(**vars(CONFIG), state_layers=(1, 2, 3)),
}


def folder_of(variant: str) -> Path:
    """Return the folder of a variant's weights; KeyError if there is none of this name."""
    return FOLDER if VARIANTS[variant] is CONFIG else FOLDER / variant


def load(variant: str = "gqa") -> tuple[Transformer, Tokenizer]:
    """Return a trained model and its tokenizer, from the files in the package; `tools/train.py` made them."""
    return checkpoints.load(folder_of(variant)), Tokenizer.of_words(VOCABULARY)
