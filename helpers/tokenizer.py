"""From words to ids and back, through the `tokenizers` library."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

EOS = "<eos>"
FILE = "tokenizer.json"
# The letter that stands for each byte in byte-level BPE: itself where it can be seen, else one from 256 on.
SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {chr(byte): byte for byte in SEEN}
LETTERS |= {chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*SEEN}))}


class Tokenizer:
    """Text to token ids and back: one id a word for this project's model, pieces of words for others."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the `tokenizers` library.

        What it may ask for in training is put off: cutting long texts, filling up short ones, chance.

        Raises:
            ValueError: it is of a kind of which `check_known` could not tell what it does not know.
        """
        model = library.model
        words, pieces = isinstance(model, models.WordLevel), isinstance(model, models.BPE)
        if not words and (not pieces or model.continuing_subword_prefix or model.end_of_word_suffix):
            raise ValueError(
                f"this {type(model).__name__} tokenizer is not supported; expected WordLevel, or BPE that, "
                "as in the Llamas, marks no parts of words"
            )
        library.no_truncation()
        library.no_padding()
        if pieces:
            model.dropout = None
        self.library = library
        self.eos: str | None = EOS
        self.bos: str | None = None  # a checkpoint may name both, and have a chat template
        self.chat_template: str | None = None
        self.vocabulary = library.get_vocab()
        added = [re.escape(token.content) for token in library.get_added_tokens_decoder().values()]
        self.added = re.compile("|".join(sorted(added, key=len, reverse=True)) or "(?!)")

    @classmethod
    def of_words(cls, words: Iterable[str]) -> Tokenizer:
        """Make a word-level tokenizer; a word's id is its place in `words`.

        Args:
            words: the vocabulary, `<eos>` in it. Text is cut at blanks and around full stops.
        """
        library = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
        stop = pre_tokenizers.Split(".", "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), stop])
        library.add_special_tokens([EOS])
        return cls(library)

    @property
    def vocab_size(self) -> int:
        """Number of ids, V."""
        return self.library.get_vocab_size()

    @property
    def eos_id(self) -> int:
        """The id of the word that ends a text, `<eos>` in ours; ValueError where there is no such word."""
        if self.eos not in self.vocabulary:
            raise ValueError(
                f"eos is {self.eos!r}; expected a token of the vocabulary: set eos to the one that ends texts"
            )
        return self.vocabulary[self.eos]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with the beginning token before it that a tokenizer.json may ask for.

        Raises:
            ValueError: a word is not in the vocabulary; the message names it and the nearest that are. Where
                words are cut into pieces: a character that no piece has.
        """
        self.check_known(text)
        return self.library.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, `<eos>` written out. ValueError for an id that is not in the vocabulary."""
        self.check_ids(ids)
        return self.library.decode(ids, skip_special_tokens=False)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return each id's own text, one string an id; errors as in `decode`.

        A piece has the blank that it adds in the middle of a text. So pieces joined are the text, where a
        tokenizer like Llama 2's then drops the blank at its beginning.
        """
        self.check_ids(ids)
        return [piece_of(self.library, i) for i in ids]

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise ValueError for an id that is not in the vocabulary."""
        if wrong := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise ValueError(f"token ids {wrong} are out of range; expected 0 to {self.vocab_size - 1}")

    def check_known(self, text: str) -> None:
        """Raise ValueError for what is not in the vocabulary: the library would drop or replace it."""
        pieces = [piece for part in self.added.split(text) for piece in self.pieces(part)]
        if isinstance(self.library.model, models.WordLevel):
            unknown = [word for word in dict.fromkeys(pieces) if word not in self.vocabulary]
            message = [f"{word!r} (nearest: {', '.join(self.nearest(word))})" for word in unknown]
        else:
            characters = dict.fromkeys("".join(pieces))
            message = [repr(character) for character in characters if not self.has_character(character)]
        if message:
            raise ValueError(f"not in the vocabulary of {self.vocab_size} words: {'; '.join(message)}")

    def pieces(self, text: str) -> list[str]:
        """Normalise a text and cut it, as the library does before it looks pieces up."""
        if self.library.normalizer is not None:
            text = self.library.normalizer.normalize_str(text)
        if self.library.pre_tokenizer is None:
            return [text] if text else []
        return [piece for piece, _ in self.library.pre_tokenizer.pre_tokenize_str(text)]

    def has_character(self, character: str) -> bool:
        """Whether the vocabulary has this character, or its bytes where the library falls back on them."""
        if character in self.vocabulary:
            return True
        spelled = [f"<0x{byte:02X}>" for byte in character.encode()]
        return self.library.model.byte_fallback and all(byte in self.vocabulary for byte in spelled)

    def nearest(self, word: str) -> list[str]:
        """Return the three words of the vocabulary that look most like this one, whatever their capitals."""
        words = {known.casefold(): known for known in self.vocabulary}
        return [words[found] for found in difflib.get_close_matches(word.casefold(), words, cutoff=0)]

    def __repr__(self) -> str:
        return f"Tokenizer({type(self.library.model).__name__}, {self.vocab_size} ids)"


def piece_of(library: tokenizers.Tokenizer, token: int) -> str:
    """Return what a token adds in the middle of a text, with \ufffd for bytes that are part of a character.

    Decoded alone, a piece that begins with a blank loses it where the library drops a text's first blank.
    Without a decoder the library puts a blank between any two tokens, which is no token's own.
    """
    alone = library.decode([token], skip_special_tokens=False)
    if library.decoder is None:
        return alone
    return library.decode([token, token], skip_special_tokens=False)[len(alone) :]


def bytes_of(library: tokenizers.Tokenizer, token: int) -> bytes:
    """Return the bytes of a token that is part of a character, of byte-level BPE or of byte fallback."""
    name = library.id_to_token(token) or ""
    if re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes.fromhex(name[3:5])
    return bytes(map(LETTERS.__getitem__, name)) if LETTERS.keys() >= {*name} else name.encode()
