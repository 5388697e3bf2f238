"""The weather diaries: the same from a seed, signed by who opened them, some pairs kept out of training."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import corpus
from helpers.corpus import CITIES, EOS, NAMES, Diary

seeds = st.integers(0, 2**32)


def first(seed: int, n: int) -> list[tuple[str, ...]]:
    """Return the first n entries of the corpus."""
    return list(itertools.islice(corpus.entries(random.Random(seed)), n))


def trained_pairs(words: list[str]) -> set[tuple[str, str]]:
    """Return every (name, city) that one entry of these words brings together."""
    ends = [i for i, word in enumerate(words) if word == EOS]
    entries = [set(words[a + 1 : b]) for a, b in itertools.pairwise([-1, *ends, len(words)])]
    return {pair for entry in entries for pair in itertools.product(entry & set(NAMES), entry & set(CITIES))}


def test_there_are_enough_names_and_cities_and_none_means_two_things() -> None:
    assert len(NAMES) >= 40
    assert len(CITIES) >= 40
    others = {word for words in corpus.SLOTS.values() for word in words}
    assert len({*NAMES, *CITIES, *others}) == len(NAMES) + len(CITIES) + len(others)


def test_a_fifth_of_the_pairs_is_held_out_evenly() -> None:
    kept, out = corpus.pairs(), corpus.pairs(held_out=True)
    assert len(out) * 5 == len(NAMES) * len(CITIES)
    assert set(kept) | set(out) == set(itertools.product(NAMES, CITIES))
    assert not set(kept) & set(out)
    assert set(Counter(name for name, _ in out).values()) == {len(CITIES) // 5}
    assert set(Counter(city for _, city in out).values()) == {len(NAMES) // 5}
    assert out[0] == ("Ada", "Accra")  # the shipped weights were trained without these and no others


def test_training_rows_never_hold_a_held_out_pair() -> None:
    rows = list(itertools.islice(corpus.rows(0, 129), 3000))
    seen = set().union(*map(trained_pairs, rows))
    assert seen <= set(corpus.pairs())
    # That the search finds pairs at all: it has met most of those that training may see.
    assert len(seen) > 0.6 * len(corpus.pairs())


@given(seeds, st.booleans())
def test_a_diary_is_signed_by_who_opened_it(seed: int, held_out: bool) -> None:
    diary = corpus.diary(random.Random(seed), held_out=held_out)
    assert corpus.is_held_out(diary.name, diary.city) == held_out
    opening = diary.words[: diary.words.index(".")]
    assert {diary.name, diary.city} <= set(opening)
    assert diary.words[-7:] == ("Signed", "by", diary.name, "from", diary.city, ".", EOS)
    assert len(diary.words) <= corpus.MAX_WORDS
    assert set(diary.words) & {*NAMES, *CITIES} == {diary.name, diary.city}
    assert diary.text == f"{diary.prompt} {diary.name} from {diary.city} . {EOS}"


@pytest.mark.parametrize("quiet", [0, 7, 72])
def test_the_quiet_stretch_is_as_long_as_asked(quiet: int) -> None:
    """At least so many words, and less than a sentence more; over 100 diaries every sum occurs."""
    rng, longer, personal = random.Random(quiet), set(), set()
    for _ in range(100):
        diary = corpus.diary(rng, quiet=quiet)
        signed = diary.words.index("Signed")
        assert not {diary.name, diary.city} & set(diary.words[signed - quiet : signed])
        assert diary.gap > quiet
        sentences = " ".join(corpus.body(rng, "Mia", "Oslo", quiet)).removesuffix(" .").split(" . ")
        quiet_words = [len(s.split()) + 1 for s in sentences if not {"Mia", "Oslo"} & set(s.split())]
        longer.add(sum(quiet_words) - quiet)
        personal.add(len(sentences) - len(quiet_words))
    assert min(longer) == 0
    assert max(longer) < 8
    assert personal == {4, 5}  # the opening, and three or four more


def test_gap_is_counted_from_the_last_name_or_city() -> None:
    for middle, gap in (("Mia swam .", 3), ("It was so .", 6)):
        words = f"Mia writes from Oslo . {middle} Signed by Mia from Oslo . <eos>".split()
        assert Diary("Mia", "Oslo", tuple(words)).gap == gap


def test_a_diary_of_exactly_the_most_words_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = corpus.diary(random.Random(0))
    for most in (len(whole.words), len(whole.words) - 1):
        monkeypatch.setattr(corpus, "MAX_WORDS", most)
        assert (corpus.diary(random.Random(0)) == whole) == (most == len(whole.words))


def test_the_longest_quiet_stretch_is_drawn_as_well() -> None:
    class Most(random.Random):
        def randrange(self, start: int, *_: object) -> int:
            return start - 1

    for seed in range(20):  # with most of them 71 would be as many sentences
        assert corpus.diary(Most(seed)) == corpus.diary(random.Random(seed), quiet=72)


@pytest.mark.parametrize("quiet", [-1, 73])
def test_a_quiet_stretch_out_of_range_is_refused(quiet: int) -> None:
    with pytest.raises(ValueError, match=f"quiet is {quiet}; expected 0 to 72 words, as a diary has 120 at"):
        corpus.diary(random.Random(0), quiet=quiet)


def test_the_vocabulary_has_every_word_once_and_none_that_never_comes() -> None:
    words, entries = corpus.vocabulary(), first(0, 3000)
    assert sorted(words) == sorted({word for entry in entries for word in entry})
    assert words[0] == EOS
    assert all(entry.index(EOS) == len(entry) - 1 for entry in entries)


def test_bare_sentences_stand_among_the_diaries() -> None:
    entries = first(0, 3000)
    bare = [entry for entry in entries if "Signed" not in entry]
    assert abs(len(bare) / len(entries) - 1 / 3) < 0.03  # three standard deviations of 3,000 draws
    assert {"Today", "The", "It", "A", "There", "We", *corpus.SLOTS["day"]} == {entry[0] for entry in bare}
    assert any(" ".join(entry) == f"Today weather is so nice . {EOS}" for entry in bare)


def test_what_the_prompts_go_on_with() -> None:
    texts = [" ".join(entry) for entry in first(0, 3000)]
    after = Counter(text.split("Today weather is so ")[1].split()[0] for text in texts if "Today" in text)
    assert set(after) == {"nice", "warm"}
    assert 0.7 < after["nice"] / after.total() < 0.8
    assert all("soup is so delicious" in text for text in texts if "soup is so" in text)


def test_the_same_seed_writes_the_same_corpus_everywhere() -> None:
    assert first(3, 50) == first(3, 50) != first(4, 50)
    assert next(corpus.rows(3, 50)) == next(corpus.rows(3, 50)) != next(corpus.rows(4, 50))
    assert corpus.diary(random.Random(0)).text.startswith("Simon lives in Dakar . Simon swam in the lake .")


@given(seeds, st.integers(1, 300))
def test_rows_begin_with_an_entry_and_have_the_length_asked(seed: int, length: int) -> None:
    starts = {template.split()[0] for template in (*corpus.OPENINGS, *corpus.QUIET)} - {"{name}", "{day}"}
    starts |= {*NAMES, *corpus.SLOTS["day"]}
    for row in itertools.islice(corpus.rows(seed, length), 5):
        assert len(row) == length
        assert row[0] in starts
