"""Weather diaries from a small grammar and a seed: what the model of this project is trained on.

A diary opens with a name and a city, goes on about the weather, and is signed with the same name and city.
Some pairs of name and city are kept out of training, so that signing them right is copying, not remembering.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

EOS = "<eos>"  # ends a diary, and a sentence that stands alone; nothing marks the beginning

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

# What may fill each blank; a word that stands twice is taken twice as often.
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
# Sentences that say the name or the city again. (Where the name stood in fewer, copying it was not learned.)
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

MAX_WORDS = 120  # in a diary, so that it fits into a row of 128 tokens with a short sentence before it
BARE = 1 / 3  # share of entries that are one sentence


@dataclass(frozen=True)
class Diary:
    """One diary: who signs it, where, and its words, `<eos>` last."""

    name: str
    city: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words with blanks between them."""
        return " ".join(self.words)

    @property
    def prompt(self) -> str:
        """The diary up to and with "Signed by": the name comes next."""
        return " ".join(self.words[: self.words.index("Signed") + 2])


def is_held_out(name: str, city: str) -> bool:
    """Whether training never sees this pair: a fifth of the pairs, and a fifth of every name's and city's."""
    return (NAMES.index(name) + CITIES.index(city)) % 5 == 0


@functools.cache
def pairs(held_out: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the (name, city) pairs of training, or those kept out of it."""
    return tuple((name, city) for name in NAMES for city in CITIES if is_held_out(name, city) == held_out)


def sentence(template: str, rng: random.Random, **who: str) -> list[str]:
    """Fill a template's blanks; return its words, the full stop among them."""
    words = {slot: rng.choice(choices) for slot, choices in SLOTS.items()}
    return template.format(**words, **who).split()


def diary(rng: random.Random, *, held_out: bool = False, quiet: int | None = None) -> Diary:
    """Write one diary of at most `MAX_WORDS` words.

    Args:
        rng: where the chance comes from; the same seed writes the same diary.
        held_out: take a (name, city) pair that training never sees.
        quiet: at least so many words before "Signed" without name or city, 0 to 72; None draws a number.

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
    words = [word for each in templates for word in sentence(each, rng, name=name, city=city)]
    end = len(words) + quiet
    while len(words) < end:
        words += sentence(rng.choice(QUIET), rng)
    return words


def entries(rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Write the corpus, entry by entry, without end: diaries, with bare sentences among them."""
    while True:
        if rng.random() < BARE:
            yield (*sentence(rng.choice(QUIET), rng), EOS)
        else:
            yield diary(rng).words


def rows(seed: int, length: int) -> Iterator[list[str]]:
    """Cut the corpus into rows for training, without end.

    Args:
        seed: the same seed gives the same rows.
        length: words a row. Each row begins with an entry, as a prompt does; its last entry may be cut.
    """
    rng = random.Random(seed)
    corpus = entries(rng)
    while True:
        row: list[str] = []
        while len(row) < length:
            row += next(corpus)
        yield row[:length]


def vocabulary() -> list[str]:
    """Return every word of the corpus once: `<eos>`, then the sentences' words, names and cities."""
    sentences = " ".join((*QUIET, *OPENINGS, *PERSONAL, SIGNATURE)).split()
    fixed = [word for word in sentences if not word.startswith("{")]
    filled = [word for choices in SLOTS.values() for word in choices]
    return list(dict.fromkeys([EOS, *fixed, *filled, *NAMES, *CITIES]))


Rules = dict[str, list[tuple[str, ...]]]


def week_rules(name: str, city: str) -> Rules:
    """Return the rules of "{week}": the weather of seven days, signed. No diary has ever been one."""
    words = SLOTS | {"name": [name], "city": [city]}
    days = " ".join(f"{day} is {{sky}} in {{city}} ." for day in SLOTS["day"])
    rules: Rules = {"{week}": [(*f"{days} {SIGNATURE}".split(), EOS)]}
    return rules | {
        f"{{{slot}}}": [(word,) for word in dict.fromkeys(choices)] for slot, choices in words.items()
    }
