"""The training data of this project's model: weather diaries, generated from a small grammar and a seed.

A diary begins with a name and a city, continues with the weather, and is signed with the same name and city.
Some (name, city) pairs are held out of training. To sign a diary with such a pair, a model must copy the
words from the diary, because it cannot have memorized the pair.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

EOS = "<eos>"  # ends a diary or a single sentence; there is no token for the beginning

NAMES = tuple(
    "Ada Aisha Amir Ana Ben Bram Carla Chen Dara David Elif Emil Emma Farid Femi Grace Hana Hugo Ida Ines "
    "Ivan Jamal Jonas Kai Kofi Lars Layla Leo Lina Luca Marta Mateo Mia Nadia Noah Nora Omar Otto Priya "
    "Rafael Rosa Sami Sara Simon Tariq Tomas Uma Vera Yuki Zoe".split()
)
CITIES = tuple(
    "Accra Amsterdam Athens Bangkok Beirut Berlin Bogota Boston Cairo Chicago Copenhagen Dakar Delhi Dublin "
    "Geneva Hanoi Havana Helsinki Istanbul Jakarta Kyiv Kyoto Lagos Lima Lisbon London Madrid Manila "
    "Melbourne Montreal Mumbai Nairobi Naples Oslo Paris Prague Quito Riga Rome Seoul Stockholm Sydney "
    "Tallinn Tokyo Toronto Tunis Vienna Warsaw Zagreb Zurich".split()
)

# The words that may fill each blank of a template; a word listed twice is chosen twice as often.
BLANKS = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "sky": "sunny cloudy rainy windy foggy snowy stormy".split(),
    "part": "morning afternoon evening night".split(),
    "feel": "nice nice nice warm".split(),
    "food": "soup bread cake rice pie".split(),
    "water": "lake river sea".split(),
    "chill": "cold calm blue".split(),
    "place": "park harbor market station garden library".split(),
    "animal": "cat dog fox horse bird".split(),
    "side": "north south east west".split(),
    "sign": "fog rain snow thunder".split(),
}
OPENINGS = (
    "{name} writes from {city} .",
    "{name} lives in {city} .",
    "This is the diary of {name} from {city} .",
)
# Sentences that repeat the name or the city. (When fewer had the name, the model did not learn to copy it.)
PERSONAL = (
    "{day} is {sky} in {city} .",
    "The {part} in {city} was {sky} .",
    "{name} swam in the {water} .",
    "{name} saw a {animal} in the {place} .",
    "{name} walked to the {place} in {city} .",
    "{name} likes the {food} in {city} .",
    "{name} waited for the {sign} in {city} .",
)
QUIET = (
    "Today weather is so {feel} .",
    "The {food} is so delicious .",
    "The {water} is so {chill} .",
    "{day} was {sky} .",
    "It was {sky} in the {part} .",
    "A {animal} slept in the {place} .",
    "The {sign} came from the {side} .",
    "There was {sign} over the {water} .",
    "We ate {food} in the {place} .",
)
SIGNATURE = "Signed by {name} from {city} ."

MAX_WORDS = 120  # of a diary: it fits, with a short sentence before it, into a text of 128 tokens
SINGLE_SENTENCE_SHARE = 1 / 3  # the share of entries that are single sentences


@dataclass(frozen=True)
class Diary:
    """One diary: the name and city in the signature, and all words. The last word is `<eos>`."""

    name: str
    city: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """All words of the diary, separated by spaces."""
        return " ".join(self.words)

    @property
    def prompt(self) -> str:
        """The diary up to and including "Signed by"; the next word is the name."""
        return " ".join(self.words[: self.words.index("Signed") + 2])


def is_held_out(name: str, city: str) -> bool:
    """Return whether a (name, city) pair is held out of training.

    For each name, and for each city, a fifth of the pairs are held out.
    """
    return (NAMES.index(name) + CITIES.index(city)) % 5 == 0


@functools.cache
def name_city_pairs(held_out: bool = False) -> tuple[tuple[str, str], ...]:
    """Return all (name, city) pairs used in training or, if `held_out` is true, all pairs held out of it."""
    return tuple((name, city) for name in NAMES for city in CITIES if is_held_out(name, city) == held_out)


def fill_sentence(template: str, rng: random.Random, **names: str) -> list[str]:
    """Fill the blanks of a template, and return the sentence's words. The full stop counts as a word.

    Args:
        template: a sentence with blanks, such as "{name} saw a {animal} .".
        rng: source of random choices, for the words that fill the blanks in `BLANKS`.
        names: values for the other blanks, `name` and `city`.
    """
    words = {slot: rng.choice(choices) for slot, choices in BLANKS.items()}
    return template.format(**words, **names).split()


def random_diary(rng: random.Random, *, held_out: bool = False, min_quiet_words: int | None = None) -> Diary:
    """Write one diary of at most `MAX_WORDS` words.

    Args:
        rng: source of random choices; the same seed gives the same diary.
        held_out: whether the (name, city) pair is one of those held out of training.
        min_quiet_words: minimum number of words, 0 to 72, in the sentences with neither the name nor the
            city; None chooses it at random.

    Raises:
        ValueError: `min_quiet_words` is out of range.
    """
    if min_quiet_words is not None and not 0 <= min_quiet_words <= 72:
        raise ValueError(
            f"min_quiet_words is {min_quiet_words}; expected 0 to 72: a diary has at most {MAX_WORDS} words"
        )
    name, city = rng.choice(name_city_pairs(held_out))
    while True:
        words = diary_body(rng, name, city, rng.randrange(73) if min_quiet_words is None else min_quiet_words)
        words += [*fill_sentence(SIGNATURE, rng, name=name, city=city), EOS]
        if len(words) <= MAX_WORDS:
            return Diary(name, city, tuple(words))


def diary_body(rng: random.Random, name: str, city: str, min_quiet_words: int) -> list[str]:
    """Return the words of a diary without its signature.

    The diary has an opening, three or four sentences with the name or the city, and then sentences with
    neither. These last sentences have at least `min_quiet_words` words in all.
    """
    templates = [rng.choice(OPENINGS), *rng.sample(PERSONAL, rng.choice((3, 4)))]
    words = [word for template in templates for word in fill_sentence(template, rng, name=name, city=city)]
    end = len(words) + min_quiet_words
    while len(words) < end:
        words += fill_sentence(rng.choice(QUIET), rng)
    return words


def corpus_entries(rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield an endless sequence of corpus entries: the words of a diary, or of a single sentence."""
    while True:
        if rng.random() < SINGLE_SENTENCE_SHARE:
            yield (*fill_sentence(rng.choice(QUIET), rng), EOS)
        else:
            yield random_diary(rng).words


def training_texts(seed: int, length: int) -> Iterator[list[str]]:
    """Yield an endless sequence of training texts of equal length, cut from the corpus.

    Args:
        seed: the same seed yields the same texts.
        length: number of words in each text. Like a prompt, each text begins at the beginning of a corpus
            entry. The last entry in a text may be cut off.
    """
    rng = random.Random(seed)
    corpus = corpus_entries(rng)
    while True:
        text: list[str] = []
        while len(text) < length:
            text += next(corpus)
        yield text[:length]


def vocabulary() -> list[str]:
    """Return the distinct words of the corpus: `<eos>`, the words of the sentences, the names, the cities."""
    sentences = " ".join((*QUIET, *OPENINGS, *PERSONAL, SIGNATURE)).split()
    fixed = [word for word in sentences if not word.startswith("{")]
    filled = [word for choices in BLANKS.values() for word in choices]
    return list(dict.fromkeys([EOS, *fixed, *filled, *NAMES, *CITIES]))
