"""The weather diaries: the same from a seed, signed by who opened them, some pairs kept out of training."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import corpus
from helpers.corpus import CITIES, EOS, NAMES

seeds = st.integers(0, 2**32)


def test_a_fifth_of_pairs_is_held_out() -> None:
    kept, out = corpus.name_city_pairs(), corpus.name_city_pairs(held_out=True)
    assert len(out) * 5 == len(NAMES) * len(CITIES)
    assert set(kept) | set(out) == set(itertools.product(NAMES, CITIES))
    assert not set(kept) & set(out)
    assert set(Counter(name for name, _ in out).values()) == {len(CITIES) // 5}
    assert set(Counter(city for _, city in out).values()) == {len(NAMES) // 5}
    assert out[0] == ("Ada", "Accra")  # the shipped weights were trained without these and no others


def test_corpus_matches_the_shipped_weights() -> None:
    """The same everywhere: another word, another chance or another longest diary makes another text."""
    text = " ".join(word for row in itertools.islice(corpus.training_texts(0, 129), 2000) for word in row)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "acd5a52362553ec8"
    assert next(corpus.training_texts(0, 129)) != next(corpus.training_texts(1, 129))


@given(seeds, st.booleans())
def test_diary_signature_matches_its_opening(seed: int, held_out: bool) -> None:
    diary = corpus.random_diary(random.Random(seed), held_out=held_out)
    assert corpus.is_held_out(diary.name, diary.city) == held_out
    opening = diary.words[: diary.words.index(".")]
    assert {diary.name, diary.city} <= set(opening)
    assert diary.words[-7:] == ("Signed", "by", diary.name, "from", diary.city, ".", EOS)
    assert len(diary.words) <= corpus.MAX_WORDS
    assert set(diary.words) & {*NAMES, *CITIES} == {diary.name, diary.city}
    assert diary.text == f"{diary.prompt} {diary.name} from {diary.city} . {EOS}"


@given(seeds, st.integers(0, 72))
@example(0, 72)
def test_quiet_stretch_has_requested_length(seed: int, quiet: int) -> None:
    diary = corpus.random_diary(random.Random(seed), min_quiet_words=quiet)
    stretch = diary.prompt.split()[-2 - quiet : -2]
    assert len(stretch) == quiet
    assert not {diary.name, diary.city} & set(stretch)


@pytest.mark.parametrize("quiet", [-1, 73])
def test_quiet_length_out_of_range_is_refused(quiet: int) -> None:
    with pytest.raises(
        ValueError, match=f"words is {quiet}; expected 0 to 72: a diary has at most 120 words"
    ):
        corpus.random_diary(random.Random(0), min_quiet_words=quiet)


def test_vocabulary_is_exactly_the_corpus_words() -> None:
    words, entries = (
        corpus.vocabulary(),
        list(itertools.islice(corpus.corpus_entries(random.Random(0)), 3000)),
    )
    assert sorted(words) == sorted({word for entry in entries for word in entry})
    assert words[0] == EOS
    assert all(entry.index(EOS) == len(entry) - 1 for entry in entries)
