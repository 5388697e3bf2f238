"""Convert text to token ids and back, with the `tokenizers` library."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

EOS = "<eos>"
FILE = "tokenizer.json"
# The byte for each character in byte-level BPE: printable bytes keep their code, others get codes from 256.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE}
BYTE_OF |= {chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*PRINTABLE}))}


class Tokenizer:
    """A tokenizer that converts text to token ids and back.

    For this project's model, each token is a whole word. For other models, tokens are subwords.
    """

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the `tokenizers` library.

        This changes the wrapped tokenizer: truncation, padding and dropout, which are for training, are
        switched off.

        Raises:
            ValueError: the tokenizer's model is not supported, because `check_in_vocabulary` could not detect
                words or characters that it does not know.
        """
        model = library.model
        words, pieces = isinstance(model, models.WordLevel), isinstance(model, models.BPE)
        if not words and (not pieces or model.continuing_subword_prefix or model.end_of_word_suffix):
            raise ValueError(
                f"this {type(model).__name__} tokenizer is not supported; expected WordLevel, or BPE without "
                "prefixes or suffixes of words, as in the Llamas"
            )
        library.no_truncation()
        library.no_padding()
        if pieces:
            model.dropout = None
        self.library = library
        self.eos: str | None = EOS
        self.bos: str | None = None  # a checkpoint may define both, and a chat template
        self.chat_template: str | None = None
        self.vocabulary = library.get_vocab()
        added = [re.escape(token.content) for token in library.get_added_tokens_decoder().values()]
        self.added_tokens_pattern = re.compile("|".join(sorted(added, key=len, reverse=True)) or "(?!)")

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Tokenizer:
        """Return a word-level tokenizer, which splits text at spaces and around full stops.

        Args:
            words: the vocabulary, including `<eos>`. The id of a word is its index, from 0.
        """
        library = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
        stop = pre_tokenizers.Split(".", "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), stop])
        library.add_special_tokens([EOS])
        return cls(library)

    @property
    def vocab_size(self) -> int:
        """The number of token ids, V, including the ids of added tokens."""
        return self.library.get_vocab_size()

    @property
    def eos_id(self) -> int:
        """The id of the token that ends a text, such as `<eos>`.

        Raises:
            ValueError: `eos` is not in the vocabulary.
        """
        if self.eos not in self.vocabulary:
            raise ValueError(
                f"eos is {self.eos!r}; expected a token of the vocabulary: set eos to the one that ends texts"
            )
        return self.vocabulary[self.eos]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, including special tokens that the tokenizer adds to every text.

        Many tokenizers add a special token at the beginning.

        Raises:
            ValueError: a word is not in the vocabulary; the message names the most similar known words. For a
                subword tokenizer, a character is not in the vocabulary.
        """
        self.check_in_vocabulary(text)
        return self.library.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text. Special tokens such as `<eos>` are written out.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        self.check_ids(ids)
        return self.library.decode(ids, skip_special_tokens=False)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Decode each token id to a string; return one string per id.

        Each string includes the space that the token adds within a text. Joining the strings therefore gives
        the whole text, with one exception: tokenizers such as Llama 2's drop a space at the beginning of a
        text.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        self.check_ids(ids)
        return [token_text(self.library, i) for i in ids]

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise ValueError if an id is not in the vocabulary."""
        if invalid := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise ValueError(f"token ids {invalid} are out of range; expected 0 to {self.vocab_size - 1}")

    def check_in_vocabulary(self, text: str) -> None:
        """Raise ValueError if a word or character of the text is not in the vocabulary.

        The library would drop it, or replace it by the token for unknown words.
        """
        pieces = [
            piece for part in self.added_tokens_pattern.split(text) for piece in self.pre_tokenize(part)
        ]
        if isinstance(self.library.model, models.WordLevel):
            words = [word for word in dict.fromkeys(pieces) if word not in self.vocabulary]
            unknown = [f"{word!r} (nearest: {', '.join(self.nearest(word))})" for word in words]
        else:
            characters = dict.fromkeys("".join(pieces))
            unknown = [repr(character) for character in characters if not self.has_character(character)]
        if unknown:
            raise ValueError(f"not in the vocabulary of {self.vocab_size} words: {'; '.join(unknown)}")

    def pre_tokenize(self, text: str) -> list[str]:
        """Normalize and pre-tokenize a text as the library does; return the pieces.

        The library then splits each piece into tokens separately.
        """
        if self.library.normalizer is not None:
            text = self.library.normalizer.normalize_str(text)
        if self.library.pre_tokenizer is None:
            return [text] if text else []
        return [piece for piece, _ in self.library.pre_tokenizer.pre_tokenize_str(text)]

    def has_character(self, character: str) -> bool:
        """Return whether a character can be encoded.

        This is so if the character is in the vocabulary. With byte fallback, it is also so if all bytes of
        the character are in the vocabulary.
        """
        if character in self.vocabulary:
            return True
        byte_tokens = [f"<0x{byte:02X}>" for byte in character.encode()]
        return self.library.model.byte_fallback and all(token in self.vocabulary for token in byte_tokens)

    def nearest(self, word: str) -> list[str]:
        """Return the three words in the vocabulary that are most similar to a given word, ignoring case."""
        words = {known.casefold(): known for known in self.vocabulary}
        return [words[match] for match in difflib.get_close_matches(word.casefold(), words, cutoff=0)]

    def __repr__(self) -> str:
        return f"Tokenizer({type(self.library.model).__name__}, {self.vocab_size} ids)"


def token_text(library: tokenizers.Tokenizer, token: int) -> str:
    """Return the string that a token adds within a text, with \ufffd for bytes of incomplete characters.

    A token that is decoded by itself can lose its leading space, because some tokenizers drop a space at the
    beginning of a text. If the library's tokenizer has no decoder, the space that the library puts between
    any two tokens is not included.
    """
    alone = library.decode([token], skip_special_tokens=False)
    if library.decoder is None:
        return alone
    return library.decode([token, token], skip_special_tokens=False)[len(alone) :]


def token_bytes(library: tokenizers.Tokenizer, token: int) -> bytes:
    """Return the bytes that a token represents. They need not form complete characters.

    The library's tokenizer must be a byte-level BPE or have byte fallback.
    """
    name = library.id_to_token(token) or ""
    if re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes.fromhex(name[3:5])
    return bytes(map(BYTE_OF.__getitem__, name)) if BYTE_OF.keys() >= {*name} else name.encode()
