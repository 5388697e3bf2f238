"""The exhibits: a report, three causes, and a function that answers a prompt with or without the bug."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, StateCache, StaticCache, WindowCache
from helpers.model.generate import run
from helpers.museum import engine
from helpers.museum.engine import Probe, SmallServer, common_prefix, rotate_at
from helpers.museum.exhibit import LEFTOVER, Rounded, exhibit, model_of
from helpers.museum.runner import Prompt, Runner

CHUNK, WIDTH, CAPACITY = 16, 64, 512  # tokens of a chunk, of a padded prompt, of a buffer

SHORT = "Today weather is so"
MIA = f"Mia writes from Oslo . Monday is sunny in Oslo . {SHORT}"
CARLA = (
    "This is the diary of Carla from Seoul . Carla saw a fox in the station . Carla waited for the fog in "
    "Seoul . Carla swam in the river . The soup is so delicious . Signed"
)
JONAS = (
    "Jonas writes from Istanbul . Monday is foggy in Istanbul . The afternoon in Istanbul was stormy . Jonas "
    "likes the soup in Istanbul . Jonas swam in the river . There was fog over the sea . Signed"
)
ROME = (
    "Jonas writes from Rome . Wednesday is snowy in Rome . Jonas swam in the lake . Jonas saw a bird in the "
    "harbor . The soup is so delicious . Signed"
)


def serve(runner: Runner, server_class: type[SmallServer], text: str, **probe: Any) -> None:
    """Answer a prompt with a server whose layers keep all KV entries."""
    server_class(runner, Probe(text, **probe), [None] * runner.model.config.n_layers).serve()


@exhibit(
    reported="hyprstream/hyprstream PR #1521",
    users="an answer as if most of the prompt were not there",
    causes=(
        "the second chunk is turned by the positions of the first",
        "the second chunk's rows replace the first chunk's",
        "a token of the second chunk sees the oldest rows, not all before it",
    ),
    cause=2,
    shows=Prompt(JONAS),
    hides=Prompt(SHORT),
)
def mask_is_aligned_top_left(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    serve(runner, engine.MaskAtTheCorner if shipped else SmallServer, prompt.text, chunk=CHUNK)


@exhibit(
    reported="TransformerLensOrg/TransformerLens PR #1617",
    users="the first token came out right, and every later one drifted",
    causes=(
        "the reply is turned by positions from 0",
        "the padding is hidden in prefill and seen in the steps",
        "the newest row is not stored",
    ),
    cause=1,
    shows=Prompt(ROME),
    hides=Prompt(
        f"{MIA} nice . {CARLA} by Carla from Seoul . Mia writes from Oslo . Mia swam in the lake . {SHORT}"
    ),
)
def padding_is_seen_in_decode(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    pads = max(0, WIDTH - len(runner.ids(prompt.text)))
    serve(runner, engine.PaddingSeen if shipped else SmallServer, prompt.text, pads=pads)


@exhibit(
    reported="rajveer43/VeloxQuant-MLX #389",
    users="right until the cache let go of its first row, worse with each further one",
    causes=(
        "one row too many is let go",
        "keys are stored before they are turned",
        "the number of rows kept is taken for the position",
    ),
    cause=2,
    shows=Prompt(CARLA),
    hides=Prompt(SHORT),
)
def rows_kept_taken_for_position(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    cache = WindowCache(runner.model.config, 20, 4, dtype=runner.model.embed_tokens.weight.dtype)
    if shipped:
        rotate_at(cache, lambda T: cache.n_entries + torch.arange(T))
    runner.reply(runner.ids(prompt.text), cache)


@exhibit(
    reported="sgl-project/sglang PR #31486",
    users="wrong output after a hit in the prefix cache",
    causes=(
        "the sampler mixes up the two requests",
        "a page is given away while its rows are still offered",
        "the rows that were found belong to other words",
    ),
    cause=1,
    shows=Prompt(
        CARLA,
        "This is the diary of Jonas from Lima . Jonas waited for the thunder in Lima . Jonas walked to "
        "the sea .",
        "from pass 4",
    ),
    hides=Prompt(CARLA),
)
def page_given_away_while_offered(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    others = {"before": prompt.text, "beside": prompt.before}  # an earlier request had the same prompt
    serve(runner, engine.PageGivenAway if shipped else SmallServer, prompt.text, **others)


@exhibit(
    model="sharing",
    reported="ml-explore/mlx-lm #1674",
    users="training and scoring differ from the replies of the same model",
    causes=(
        "the cached run reads stale rows",
        "the difference is rounding",
        "without a cache a layer does not share rows as it was trained to",
    ),
    cause=2,
    shows=Prompt(MIA),
    hides=Prompt(CARLA),
)
def uncached_layer_shares_no_rows(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    cache = GrowingCache(runner.model.config)
    append = cache.append

    def append_shared(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        entries = append(layer, k, v)
        return (cache.k[layer - 1], cache.v[layer - 1]) if layer == LEFTOVER else entries

    vars(cache).update(append=append_shared)
    runner.reply(runner.ids(prompt.text), None if shipped else cache)


@exhibit(
    model="bfloat16",
    reported="vllm-project/vllm #39146",
    users="other words at temperature 0 beside other requests, filed as corrupted blocks",
    causes=(
        "nothing is wrong: sums in another order",
        "a block of rows is overwritten",
        "two requests share a block",
    ),
    cause=0,
    shows=Prompt(
        "David writes from Dakar . David swam in the lake . The evening in Dakar was snowy . "
        "David likes the cake in Dakar . David saw a cat in the garden . We ate rice in the "
        "harbor ."
    ),
    hides=Prompt(ROME),
)
def sums_in_another_order(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    for part in runner.model.modules():
        if isinstance(part, Rounded):
            part.pieces = 2 if shipped else 1
    runner.reply(runner.ids(prompt.text), runner.model.new_cache())


@exhibit(
    reported="huggingface/transformers PR #30414",
    users="gibberish, the sooner the more tokens were allowed for the reply",
    causes=(
        "the prompt was cut off at its end",
        "rows that nobody has written are looked at",
        "rows were written in the wrong order",
    ),
    cause=1,
    shows=Prompt(
        "Emma writes from Cairo . Emma likes the bread in Cairo . Emma saw a bird in the library "
        ". Emma waited for the thunder in Cairo . Sunday was rainy . Signed"
    ),
    hides=Prompt(JONAS),
)
def unwritten_rows_are_seen(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    serve(runner, engine.UnwrittenSeen if shipped else SmallServer, prompt.text, chunk=CAPACITY)


@exhibit(
    reported="huggingface/transformers PR #48809",
    users="a cache that served one prompt, was reset, and answers a second prompt wrongly",
    causes=(
        "the rows were set to zero and the length was kept",
        "the positions go on from those of the first prompt, and nothing else",
        "the rows of the reply are not stored",
    ),
    cause=0,
    shows=Prompt(MIA, CARLA),
    hides=Prompt(MIA),
)
def reset_keeps_the_length(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    serve(runner, engine.LengthKept if shipped else SmallServer, prompt.text, before=prompt.before)


@exhibit(
    reported="huggingface/transformers PR #38156",
    users="incoherent text as soon as the text is longer than the window",
    causes=(
        "the layers that see all rows are cut to the window, too",
        "the length is asked of layer 1, which keeps a window",
        "the prompt is cut to the newest 28 tokens",
    ),
    cause=1,
    shows=Prompt(CARLA),
    hides=Prompt(SHORT),
)
def length_asked_of_the_window_layer(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    (engine.RowsCounted if shipped else SmallServer)(runner, Probe(prompt.text)).serve()


@exhibit(
    model="adapter",
    reported="ggml-org/llama.cpp #26207",
    users="a little of another persona in the answer, and nothing in the log",
    causes=(
        "rows made without the adapter are used again",
        "the adapter was not loaded",
        "the rows that were found belong to other words",
    ),
    cause=0,
    shows=Prompt(MIA, MIA),
    hides=Prompt(MIA, CARLA),
)
def rows_reused_without_the_adapter(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    ids, cache = runner.ids(prompt.text), StaticCache(runner.model.config)
    if found := common_prefix(ids[:-1], runner.ids(prompt.before)):
        run(model_of("diary")[0] if shipped else runner.model, torch.tensor([ids[:found]]), cache)
    runner.reply(ids, cache, n_cached=found)


@exhibit(
    model="hybrid",
    reported="huggingface/transformers PR #45513",
    users="wrong only where several tokens at once came in behind earlier ones",
    causes=(
        "several tokens at once begin with an empty state",
        "the chunks come in the wrong order",
        "the state fades too fast",
    ),
    cause=0,
    shows=Prompt(
        "This is the diary of Nora from Berlin . Nora swam in the river . Nora likes the pie in "
        "Berlin . Nora walked to the library in Berlin . A bird slept in the market ."
    ),
    hides=Prompt(SHORT),
)
def chunk_begins_with_an_empty_state(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    cache = StateCache(runner.model.config)
    positions, state = cache.positions, cache.state
    lengths: list[int] = []  # tokens of each pass

    def noting_positions(T: int) -> Tensor:
        lengths.append(T)
        return positions(T)

    if shipped:
        vars(cache).update(
            positions=noting_positions,
            state=lambda layer: cache.initial_state() if lengths[-1] > 1 else state(layer),
        )
    runner.reply(runner.ids(prompt.text), cache, CHUNK)


@exhibit(
    model="hybrid",
    reported="huggingface/transformers #49036",
    users="with drafts other words than without, though drafts should change none",
    causes=(
        "rejected drafts are said all the same",
        "the rows are taken back and the state is not",
        "one row too many is taken back",
    ),
    cause=1,
    shows=Prompt(MIA, "cold . Signed by Ines from Paris .", "rejected draft"),
    hides=Prompt(MIA),
)
def state_is_not_rewound(runner: Runner, prompt: Prompt, shipped: bool) -> None:
    cache = StateCache(runner.model.config)

    def draft(n: int) -> None:
        before = cache.snapshot()
        if n == 1 and prompt.before:
            run(runner.model, torch.tensor([runner.ids(prompt.before)]), cache)  # a draft that is rejected
        if shipped:
            cache.length = before.length
        else:
            cache.restore(before)

    runner.before_step = draft
    runner.reply(runner.ids(prompt.text), cache)
