"""The small model of this project: its sizes, and its trained weights from the package."""

from __future__ import annotations

from pathlib import Path

from helpers import corpus
from helpers.model import load as checkpoints
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

FOLDER = Path(__file__).parent.parent / "weights"
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


def load() -> tuple[Transformer, Tokenizer]:
    """Return the trained model and its tokenizer, from the files in the package; `.ci/train.py` made them."""
    return checkpoints.load(FOLDER), Tokenizer.load(FOLDER)
