"""From words to ids and back, through the `tokenizers` library."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers

EOS = "<eos>"
FILE = "tokenizer.json"


class Tokenizer:
    """Text to token ids and back: one id a word for this project's model, pieces of words for others."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the `tokenizers` library."""
        self.library = library
        self.vocabulary = library.get_vocab()

    @classmethod
    def of_words(cls, words: Iterable[str]) -> Tokenizer:
        """Make a word-level tokenizer; a word's id is its place in `words`.

        Args:
            words: the vocabulary, `<eos>` in it. Text is cut at blanks and around full stops.

        Raises:
            ValueError: `<eos>` is missing, or a word stands twice or has a blank or a full stop in it.
        """
        words = list(words)
        check_words(words)
        library = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
        stop = pre_tokenizers.Split(".", "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), stop])
        library.add_special_tokens([EOS])
        return cls(library)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """Read `tokenizer.json` from a folder.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(f"no {FILE} in {folder}: expected the file that `save` writes there")
        try:
            return cls(tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{path} is not a tokenizer that can be read: {error}") from error

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into a folder that is there."""
        text = json.dumps(json.loads(self.library.to_str()), ensure_ascii=False, indent=1)
        (Path(folder) / FILE).write_text(text + "\n", encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """Number of ids, V."""
        return self.library.get_vocab_size()

    @property
    def eos_id(self) -> int | None:
        """The id of `<eos>`; None where the vocabulary has no such word."""
        return self.library.token_to_id(EOS)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text.

        Raises:
            ValueError: a word is not in the vocabulary; the message names it and the nearest that are.
        """
        if isinstance(self.library.model, models.WordLevel):
            self.check_known(text)
        return self.library.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, `<eos>` written out.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        self.check_ids(ids)
        return self.library.decode(ids, skip_special_tokens=False)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return each id's own text, one string an id; errors as in `decode`."""
        return [self.decode([i]) for i in ids]

    def check_known(self, text: str) -> None:
        """Raise ValueError if a word of the text is not in the vocabulary."""
        pieces = [word for word, _ in self.library.pre_tokenizer.pre_tokenize_str(text)]
        unknown = [word for word in dict.fromkeys(pieces) if word not in self.vocabulary]
        if unknown:
            told = "; ".join(f"{word!r} (nearest: {', '.join(self.nearest(word))})" for word in unknown)
            raise ValueError(f"not in the vocabulary of {self.vocab_size} words: {told}")

    def nearest(self, word: str, n: int = 3) -> list[str]:
        """Return the n words of the vocabulary that look most like this one, whatever their capitals."""
        likeness = difflib.SequenceMatcher(b=word.casefold())

        def unlike(known: str) -> float:
            likeness.set_seq1(known.casefold())
            return -likeness.ratio()

        return sorted(sorted(self.vocabulary, key=lambda known: self.vocabulary[known]), key=unlike)[:n]

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise ValueError if an id is not in the vocabulary."""
        wrong = [i for i in ids if not 0 <= i < self.vocab_size]
        if wrong:
            raise ValueError(f"token ids {wrong} are out of range; expected 0 to {self.vocab_size - 1}")

    def __repr__(self) -> str:
        kind = type(self.library.model).__name__
        return f"Tokenizer({kind}, {self.vocab_size} ids)"


def check_words(words: Sequence[str]) -> None:
    """Raise ValueError unless every word can be told from the others in a text."""
    if EOS not in words:
        raise ValueError(f"the vocabulary lacks {EOS!r}, which ends a text")
    double = sorted({word for word in words if words.count(word) > 1})
    if double:
        raise ValueError(f"words that stand twice in the vocabulary: {', '.join(double)}")
    for word in words:
        if word != "." and ("." in word or word.split() != [word]):
            raise ValueError(f"{word!r} is cut when it stands in a text; expected no blanks or full stops")
