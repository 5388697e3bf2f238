"""A thirteenth exhibit, drawn by seed from parts: what goes wrong, in which layer, from which pass on."""

from __future__ import annotations

import random

from torch import Tensor

from helpers import corpus
from helpers.model.cache import GrowingCache
from helpers.model.shipped import CONFIG
from helpers.museum.exhibit import Exhibit
from helpers.museum.exhibits import SHORT, plant
from helpers.museum.runner import Prompt, Runner

CAUSES = (
    "the oldest row is hidden, in all layers",
    "a layer stores the keys of its two KV heads the wrong way round",
    "a layer stores the values of its two KV heads the wrong way round",
)


def hunt(seed: int) -> Exhibit:
    """Return an exhibit that says wrong words; its cause, layer and first pass are drawn by the seed."""
    rng = random.Random(seed)
    while True:
        case = drawn(rng, seed)
        if case.answer(case.shows, shipped=True).text != case.answer(case.shows, shipped=False).text:
            return case


def drawn(rng: random.Random, seed: int) -> Exhibit:
    """Draw an exhibit, whether its words are wrong or not."""
    cause, layer, begins = rng.randrange(3), rng.randrange(CONFIG.n_layers), rng.randrange(5)
    words = corpus.diary(rng, held_out=True, quiet=4).words

    def serve(runner: Runner, prompt: Prompt, shipped: bool) -> None:
        cache = GrowingCache(runner.model.config)
        append, mask = cache.append, cache.mask

        def turned(at: int, *rows: Tensor) -> tuple[Tensor, Tensor]:
            wrong = at == layer and cache.changes >= begins
            k, v = (x.flip(1) if wrong and cause == n else x for n, x in enumerate(rows, 1))
            return append(at, k, v)

        def blind(T: int, at: int = 0) -> Tensor:
            seen = mask(T).clone()
            seen[cache.length == 0 :, 0] &= cache.changes < begins  # the first token sees itself
            return seen

        if shipped:
            plant(cache, **{"mask": blind} if cause == 0 else {"append": turned})
        runner.reply(runner.ids(prompt.text), cache)

    prompt = Prompt(" ".join(words[: words.index("Signed")]))
    return Exhibit(f"hunt({seed})", "", "", CAUSES, cause, prompt, Prompt(SHORT), serve)
