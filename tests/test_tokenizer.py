"""Words to ids and back, what is said of a word it does not know, and the saved file."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from helpers import corpus
from helpers.tokenizer import EOS, Tokenizer

WORDS = corpus.vocabulary()
TOKENIZER = Tokenizer.of_words(WORDS)


@given(st.lists(st.sampled_from(WORDS)))
def test_text_comes_back_as_it_was(words: list[str]) -> None:
    ids = TOKENIZER.encode(" ".join(words))
    assert ids == [WORDS.index(word) for word in words]
    assert TOKENIZER.decode(ids) == " ".join(words)
    assert TOKENIZER.words(ids) == words


def test_the_corpus_goes_through() -> None:
    for entry in itertools.islice(corpus.entries(random.Random(1)), 200):
        assert TOKENIZER.words(TOKENIZER.encode(" ".join(entry))) == list(entry)


def test_the_prompt_of_the_series_is_four_tokens() -> None:
    assert TOKENIZER.words(TOKENIZER.encode("Today weather is so")) == ["Today", "weather", "is", "so"]
    assert TOKENIZER.encode("") == []


def test_a_full_stop_needs_no_blank_before_it() -> None:
    assert TOKENIZER.encode(f"Mia swam.\n{EOS}") == TOKENIZER.encode(f"Mia swam . {EOS}")


def test_the_end_is_the_corpus_s_and_is_told() -> None:
    assert EOS == corpus.EOS
    assert TOKENIZER.eos_id == TOKENIZER.encode(EOS)[0] == WORDS.index(EOS)
    assert TOKENIZER.vocab_size == len(WORDS)
    assert repr(TOKENIZER) == f"Tokenizer(WordLevel, {len(WORDS)} ids)"


def test_unknown_words_are_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="not in the vocabulary of 185 words") as error:
        TOKENIZER.encode("Today whether is so NICE whether")
    told = str(error.value)
    assert "'whether' (nearest: weather, " in told
    assert "'NICE' (nearest: nice, " in told
    assert told.count("whether") == 1
    assert "'Today'" not in told


@pytest.mark.parametrize("ids", [[-1], [len(WORDS)], [0, 1, 10**9]])
def test_ids_out_of_range_are_named(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=rf"\[{ids[-1]}\] are out of range; expected 0 to {len(WORDS) - 1}"):
        TOKENIZER.decode(ids)
    with pytest.raises(ValueError, match="out of range"):
        TOKENIZER.words(ids)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["Mia"], "lacks '<eos>'"),
        ([EOS, "Mia", "Mia"], "stand twice in the vocabulary: Mia"),
        ([EOS, "New York"], "'New York' is cut"),
        ([EOS, "St.Ives"], "'St.Ives' is cut"),
        ([EOS, ""], "'' is cut"),
    ],
)
def test_a_vocabulary_that_cannot_work_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Tokenizer.of_words(words)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocabulary == TOKENIZER.vocabulary
    text = "Mia writes from Oslo . <eos>"
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    # The library reads the same file without our wrapper, and it is JSON that a person can read.
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode(text).ids == TOKENIZER.encode(text)
    saved = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert saved["model"]["type"] == "WordLevel"


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    once = (tmp_path / "tokenizer.json").read_bytes()
    Tokenizer.load(tmp_path).save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == once


def of_bytes() -> tokenizers.Tokenizer:
    """As Llama 3, Qwen2 and SmolLM2 have it: characters are written as bytes, a sign for each."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    library.train_from_iterator(["Today weather is so nice"] * 9, trainer)
    library.add_special_tokens(["<|end|>"])
    return library


def of_characters(byte_fallback: bool = True) -> tokenizers.Tokenizer:
    """As Llama 2 and Mistral have it: no pre-tokenizer; a character without a piece becomes its bytes."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁aiostweh", "▁i", "▁is"]
    merges = [("▁", "i"), ("▁i", "s")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    library = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=byte_fallback)
    )
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(parts)
    library.add_special_tokens(["<unk>", "<s>"])
    return library


@functools.cache
def made(make: Callable[[], tokenizers.Tokenizer]) -> tokenizers.Tokenizer:
    return make()


@pytest.mark.parametrize("make", [of_bytes, of_characters])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<")))
def test_a_tokenizer_of_pieces_knows_every_text(make: Callable[[], tokenizers.Tokenizer], text: str) -> None:
    tokenizer = Tokenizer(made(make))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("make", [of_bytes, of_characters])
def test_a_tokenizer_of_pieces_loads_too(tmp_path: Path, make: Callable[[], tokenizers.Tokenizer]) -> None:
    """Other models of the family cut words into pieces."""
    make().save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    ids = loaded.encode("Today whether is så")
    assert loaded.decode(ids) == "Today whether is så"
    assert ids == make().encode("Today whether is så").ids
    assert loaded.eos_id is None
    assert "BPE" in repr(loaded)


def test_a_character_that_no_piece_has_is_named() -> None:
    """The library drops it, or puts <unk> in its place, and says nothing."""
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])))
    assert tokenizer.encode("abba") == [2, 1, 0]
    with pytest.raises(ValueError, match=r"not in the vocabulary of 3 words: 'z'; 'é'$"):
        tokenizer.encode("abzabéz")
    with pytest.raises(ValueError, match="'T'; 'd'; 'y'; '!'"):
        Tokenizer(of_characters(byte_fallback=False)).encode("Today is!")


def test_special_words_stand_in_a_text_of_pieces() -> None:
    tokenizer = Tokenizer(of_characters(byte_fallback=False))  # it has no "<"
    assert tokenizer.encode("<s>is") == [tokenizer.vocabulary["<s>"], tokenizer.vocabulary["▁is"]]


def test_the_beginning_token_that_a_file_asks_for_is_added(tmp_path: Path) -> None:
    library = of_bytes()
    bare = library.encode("Today").ids
    end = [("<|end|>", library.token_to_id("<|end|>"))]
    library.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=end)
    library.save(str(tmp_path / "tokenizer.json"))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ids = Tokenizer.load(tmp_path).encode("Today")
    assert ids == theirs("Today")["input_ids"] == [end[0][1], *bare]


def of_foreign_words() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.WordLevel({"hello": 0, "[UNK]": 1, "so nice": 2}, unk_token="[UNK]"))


def test_foreign_words_are_normalised_as_the_library_does_it() -> None:
    library = of_foreign_words()
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    assert Tokenizer(library).encode("Hello HELLO") == [0, 0]
    with pytest.raises(ValueError, match=r"not in the vocabulary of 3 words: 'mia' .nearest"):
        Tokenizer(library).encode("Hello Mia")


def test_foreign_words_that_nothing_cuts() -> None:
    tokenizer = Tokenizer(of_foreign_words())
    assert (tokenizer.encode("so nice"), tokenizer.encode("")) == ([2], [])
    with pytest.raises(ValueError, match=r"'hello hello' .nearest: hello"):
        tokenizer.encode("hello hello")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"), "a WordPiece tokenizer is not supported"),
        (models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0), "a Unigram tokenizer is not supported"),
        (models.BPE({"a": 0, "##b": 1}, [], continuing_subword_prefix="##"), "marks the parts of a word"),
        (models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"), "marks the parts of a word"),
    ],
)
def test_kinds_that_could_lose_a_word_are_refused(
    tmp_path: Path, model: tokenizers.models.Model, told: str
) -> None:
    library = tokenizers.Tokenizer(model)
    with pytest.raises(ValueError, match=told):
        Tokenizer(library)
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=rf"tokenizer\.json .*: {told}|{told}"):
        Tokenizer.load(tmp_path)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer that can be read: No such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer that can be read"):
        Tokenizer.load(tmp_path)
