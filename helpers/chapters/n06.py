"""What notebook 06, learned heads, uses alone: its prediction, and for how many names the right one leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers import corpus
from helpers.check.guess import Guess
from helpers.model import shipped
from helpers.model.evaluate import next_words
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer


def names_found(guess: Any, best: Sequence[str]) -> Guess:
    """Compare a guess with how many of the 50 words that fit best are names."""
    names = sum(word in corpus.NAMES for word in best[:50])
    return Guess(guess, names, "Every name comes before every other word.")


def names_that_lead(model: Transformer, tokenizer: Tokenizer) -> int:
    """Put each name into the diary in Mia's place; return for how many no other name is likelier."""
    right = 0
    for name in corpus.NAMES:
        words = next_words(model, tokenizer, shipped.DIARY.replace("Mia", name), n=tokenizer.vocab_size)
        right += name == next(word for word, _ in words if word in corpus.NAMES)
    return right
