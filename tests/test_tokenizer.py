"""Words to ids and back, what is said of a word it does not know, and the saved file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from helpers import corpus
from helpers.model import shipped
from helpers.recording.model import display_text
from helpers.tokenizer import EOS, FILE, Tokenizer
from helpers.trace import join_token_texts

WORDS = corpus.vocabulary()
TOKENIZER = Tokenizer.from_words(WORDS)


@given(st.lists(st.sampled_from(WORDS)))
def test_encode_decode_round_trip(words: list[str]) -> None:
    ids = TOKENIZER.encode(" ".join(words))
    assert ids == [WORDS.index(word) for word in words]
    assert TOKENIZER.decode(ids) == " ".join(words)
    assert TOKENIZER.words(ids) == words


def test_full_stop_needs_no_space_before() -> None:
    assert TOKENIZER.words(TOKENIZER.encode(f"Mia swam.\n{EOS}")) == ["Mia", "swam", ".", EOS]


def test_eos_is_that_of_the_corpus() -> None:
    assert EOS == corpus.EOS
    assert TOKENIZER.eos_id == TOKENIZER.encode(EOS)[0] == WORDS.index(EOS)
    assert TOKENIZER.vocab_size == len(WORDS)
    nameless = Tokenizer.from_words([EOS])
    nameless.eos = None
    with pytest.raises(ValueError, match="eos is None; expected a token of the vocabulary"):
        _ = nameless.eos_id
    assert repr(TOKENIZER) == f"Tokenizer(WordLevel, {len(WORDS)} ids)"


def test_unknown_word_error_suggests_nearest() -> None:
    with pytest.raises(ValueError, match="not in the vocabulary of 185 words") as error:
        TOKENIZER.encode("Today whether is so NICE whether mia")
    message = str(error.value)
    assert "'whether' (nearest: weather, " in message
    assert "'NICE' (nearest: nice, " in message
    assert "'mia' (nearest: Mia, " in message
    assert message.count("whether") == 1
    assert message.count(",") == 6  # three words each
    assert "'Today'" not in message


@pytest.mark.parametrize("ids", [[-1], [0, 1, len(WORDS)]])
def test_ids_out_of_range_are_refused(ids: list[int]) -> None:
    for refused in (TOKENIZER.decode, TOKENIZER.words):
        with pytest.raises(ValueError, match=rf"\[{ids[-1]}\] are out of range; expected 0 to 184"):
            refused(ids)


def test_shipped_tokenizer_has_the_corpus_words() -> None:
    library = tokenizers.Tokenizer.from_file(str(shipped.FOLDER / FILE))
    assert library.to_str() == TOKENIZER.library.to_str()


def of_bytes() -> tokenizers.Tokenizer:
    """As Llama 3, Qwen2 and SmolLM2 have it: characters are written as bytes, a sign for each."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(["Today weather is so nice"] * 9, trainer)
    library.add_special_tokens(["<|end|>"])
    return library


def of_characters(byte_fallback: bool = True) -> tokenizers.Tokenizer:
    """As Llama 2 and Mistral have it: no pre-tokenizer; a character without a piece becomes its bytes."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁aiostweh", "▁i", "▁is"]
    vocabulary, merges = {piece: i for i, piece in enumerate(pieces)}, [("▁", "i"), ("▁i", "s")]
    model = models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=byte_fallback)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(parts)
    library.add_special_tokens(["<unk>", "<s>"])
    return library


MAKERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {"bytes": of_bytes, "characters": of_characters}
made = functools.cache(lambda name: Tokenizer(MAKERS[name]()))


@pytest.mark.parametrize("name", MAKERS)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<")))
def test_subword_tokenizer_encodes_any_text(name: str, text: str) -> None:
    ids = made(name).encode(text)
    assert made(name).decode(ids) == text
    shown = join_token_texts(
        display_text(made(name), i) for i in ids
    )  # the blank that Llama 2 has before a text is there
    assert shown.removeprefix(" " if name == "characters" and text else "") == text


def test_token_text_includes_its_space() -> None:
    """Also where the library drops the first blank of a text, and for a tokenizer of `transformers`."""
    tokenizer = made("characters")
    ids = tokenizer.encode("is  so é")
    assert tokenizer.words(ids) == [" is", " ", " ", "s", "o", " ", "\ufffd", "\ufffd"]
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer.library)
    for known in (tokenizer, theirs):
        assert [display_text(known, i) for i in ids] == [" is", " ", " ", "s", "o", " ", "<0xC3>", "<0xA9>"]


def test_unknown_character_is_named() -> None:
    """The library drops it, or puts <unk> in its place, and says nothing."""
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])))
    assert tokenizer.encode("abba") == [2, 1, 0]
    with pytest.raises(ValueError, match=r"not in the vocabulary of 3 words: 'z'; 'é'$"):
        tokenizer.encode("abzabéz")
    with pytest.raises(ValueError, match="'T'; 'd'; 'y'; '!'"):
        Tokenizer(of_characters(byte_fallback=False)).encode("Today is!")
    half = tokenizers.Tokenizer(models.BPE({"<0xC3>": 0}, [], byte_fallback=True))
    with pytest.raises(ValueError, match="'é'"):
        Tokenizer(half).encode("é")


def test_special_tokens_in_subword_text() -> None:
    """The longest that fits, though there is neither "<" nor "!" among the pieces."""
    library = of_characters(byte_fallback=False)
    library.add_special_tokens(["<s>!"])
    ids = Tokenizer(library).encode("<s>!is<s>")
    assert ids == [library.token_to_id(piece) for piece in ("<s>!", "▁is", "<s>")]


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"),
        models.BPE({"a": 0, "##b": 1}, [], continuing_subword_prefix="##"),
        models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"),
    ],
)
def test_unsupported_tokenizer_models_are_refused(model: models.Model) -> None:
    with pytest.raises(ValueError, match=r"this (WordPiece|BPE) tokenizer is not supported; expected "):
        Tokenizer(tokenizers.Tokenizer(model))


def test_training_settings_are_switched_off() -> None:
    """Long texts are not cut, short ones not filled up, and there is no chance: as in `transformers`."""
    library = of_bytes()
    text = "Today weather is so nice"
    wanted = [*library.encode(text).ids, library.token_to_id("<|end|>")]
    library.enable_truncation(2)
    library.enable_padding(length=99)
    data = json.loads(library.to_str())
    data["truncation"]["stride"] = 5
    data["model"]["dropout"] = 1.0
    assert Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(data))).encode(text + "<|end|>") == wanted
