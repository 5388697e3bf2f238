"""Weather diaries from a small grammar and a seed: the training data of this project's model.

A diary begins with a name and a city, continues with the weather, and is signed with the same name and city.
Some pairs of name and city are held out of training, so that signing them is copying, not memorization.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

EOS = "<eos>"  # ends a diary or a single sentence; nothing marks the beginning

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

# The words for each blank; a word that is listed twice is chosen twice as often.
SLOTS = {
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
# Sentences that repeat the name or the city. (With the name in fewer, the model did not learn to copy it.)
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

MAX_WORDS = 120  # in a diary, so that it fits into a text of 128 tokens with a short sentence before it
BARE = 1 / 3  # the share of entries that are single sentences


@dataclass(frozen=True)
class Diary:
    """One diary: the name and city of its signature, and its words, ending with `<eos>`."""

    name: str
    city: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.words)

    @property
    def prompt(self) -> str:
        """The diary up to and including "Signed by": the name comes next."""
        return " ".join(self.words[: self.words.index("Signed") + 2])


def is_held_out(name: str, city: str) -> bool:
    """Whether a pair is held out of training: a fifth of all pairs, and of those of every name and city."""
    return (NAMES.index(name) + CITIES.index(city)) % 5 == 0


@functools.cache
def pairs(held_out: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the (name, city) pairs that are in training, or those held out."""
    return tuple((name, city) for name in NAMES for city in CITIES if is_held_out(name, city) == held_out)


def sentence(template: str, rng: random.Random, **names: str) -> list[str]:
    """Fill in a template; return its words, including the full stop."""
    words = {slot: rng.choice(choices) for slot, choices in SLOTS.items()}
    return template.format(**words, **names).split()


def diary(rng: random.Random, *, held_out: bool = False, quiet: int | None = None) -> Diary:
    """Write one diary of at most `MAX_WORDS` words.

    Args:
        rng: source of random choices; the same seed writes the same diary.
        held_out: use a (name, city) pair that is not in training.
        quiet: minimum number of words without name or city before "Signed", 0 to 72; None chooses at random.

    Raises:
        ValueError: quiet is out of range.
    """
    if quiet is not None and not 0 <= quiet <= 72:
        raise ValueError(f"quiet is {quiet}; expected 0 to 72 words, as a diary has {MAX_WORDS} at most")
    name, city = rng.choice(pairs(held_out))
    while True:
        words = body(rng, name, city, rng.randrange(73) if quiet is None else quiet)
        words += [*sentence(SIGNATURE, rng, name=name, city=city), EOS]
        if len(words) <= MAX_WORDS:
            return Diary(name, city, tuple(words))


def body(rng: random.Random, name: str, city: str, quiet: int) -> list[str]:
    """Write a diary without its signature: opening, three or four personal sentences, a quiet stretch."""
    templates = [rng.choice(OPENINGS), *rng.sample(PERSONAL, rng.choice((3, 4)))]
    words = [word for template in templates for word in sentence(template, rng, name=name, city=city)]
    end = len(words) + quiet
    while len(words) < end:
        words += sentence(rng.choice(QUIET), rng)
    return words


def entries(rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield the endless corpus, entry by entry: diaries and single sentences."""
    while True:
        if rng.random() < BARE:
            yield (*sentence(rng.choice(QUIET), rng), EOS)
        else:
            yield diary(rng).words


def training_texts(seed: int, length: int) -> Iterator[list[str]]:
    """Yield an endless sequence of training texts of equal length, cut from the corpus.

    Args:
        seed: the same seed yields the same texts.
        length: words in a text. It begins with an entry, as a prompt does; its last entry may be cut.
    """
    rng = random.Random(seed)
    corpus = entries(rng)
    while True:
        text: list[str] = []
        while len(text) < length:
            text += next(corpus)
        yield text[:length]


def vocabulary() -> list[str]:
    """Return all words of the corpus: `<eos>`, then the words of sentences, names and cities."""
    sentences = " ".join((*QUIET, *OPENINGS, *PERSONAL, SIGNATURE)).split()
    fixed = [word for word in sentences if not word.startswith("{")]
    filled = [word for choices in SLOTS.values() for word in choices]
    return list(dict.fromkeys([EOS, *fixed, *filled, *NAMES, *CITIES]))


Rules = dict[str, list[tuple[str, ...]]]


def week_rules(name: str, city: str) -> Rules:
    """Return the rules of "{week}": a signed report of the weather of seven days, which no diary contains."""
    words = SLOTS | {"name": [name], "city": [city]}
    days = " ".join(f"{day} is {{sky}} in {{city}} ." for day in SLOTS["day"])
    rules: Rules = {"{week}": [(*f"{days} {SIGNATURE}".split(), EOS)]}
    return rules | {
        f"{{{slot}}}": [(word,) for word in dict.fromkeys(choices)] for slot, choices in words.items()
    }
