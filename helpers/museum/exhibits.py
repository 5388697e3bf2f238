"""The exhibits of the museum.

Each consists of a bug report, three possible causes, and a function that answers a prompt with or without the
bug.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, StateCache, StaticCache, WindowCache
from helpers.model.generate import next_token_logits
from helpers.museum import engine
from helpers.museum.engine import Probe, ReferenceServer, common_prefix_length, override_rotary_positions
from helpers.museum.exhibit import SHARING_LAYER, RoundedLinear, load_model, register_exhibit
from helpers.museum.runner import ExhibitPrompt, Runner

CHUNK_SIZE, PADDED_LENGTH, BUFFER_LENGTH = 16, 64, 512  # tokens per chunk, padded prompt, buffer

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


def serve_with(runner: Runner, server_class: type[ReferenceServer], text: str, **changes: Any) -> None:
    """Answer a prompt with a server that keeps all KV entries in all layers; `changes` are `Probe` fields."""
    server_class(runner, Probe(text, **changes), [None] * runner.model.config.n_layers).serve()


@register_exhibit(
    issue="hyprstream/hyprstream PR #1521",
    symptom="an answer as if most of the prompt were not there",
    causes=(
        "the second chunk is turned by the positions of the first",
        "the second chunk's rows replace the first chunk's",
        "a token of the second chunk sees the oldest rows, not all before it",
    ),
    correct_cause=2,
    failing_prompt=ExhibitPrompt(JONAS),
    passing_prompt=ExhibitPrompt(SHORT),
)
def bug_mask_aligned_top_left(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    server_class = engine.MaskAlignedTopLeft if with_bug else ReferenceServer
    serve_with(runner, server_class, prompt.text, chunk=CHUNK_SIZE)


@register_exhibit(
    issue="TransformerLensOrg/TransformerLens PR #1617",
    symptom="the first token came out right, and every later one drifted",
    causes=(
        "the reply is turned by positions from 0",
        "the padding is hidden in prefill and seen in the steps",
        "the newest row is not stored",
    ),
    correct_cause=1,
    failing_prompt=ExhibitPrompt(ROME),
    passing_prompt=ExhibitPrompt(
        f"{MIA} nice . {CARLA} by Carla from Seoul . Mia writes from Oslo . Mia swam in the lake . {SHORT}"
    ),
)
def bug_padding_visible_in_decode(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    pads = max(0, PADDED_LENGTH - len(runner.encode(prompt.text)))
    serve_with(runner, engine.PaddingVisibleInDecode if with_bug else ReferenceServer, prompt.text, pads=pads)


@register_exhibit(
    issue="rajveer43/VeloxQuant-MLX #389",
    symptom="right until the cache let go of its first row, worse with each further one",
    causes=(
        "one row too many is let go",
        "keys are stored before they are turned",
        "the number of rows kept is taken for the position",
    ),
    correct_cause=2,
    failing_prompt=ExhibitPrompt(CARLA),
    passing_prompt=ExhibitPrompt(SHORT),
)
def bug_entry_count_as_position(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    cache = WindowCache(runner.model.config, 20, 4, dtype=runner.model.embed_tokens.weight.dtype)
    if with_bug:
        override_rotary_positions(cache, lambda T: cache.n_entries + torch.arange(T))
    runner.generate_reply(runner.encode(prompt.text), cache)


@register_exhibit(
    issue="sgl-project/sglang PR #31486",
    symptom="wrong output after a hit in the prefix cache",
    causes=(
        "the sampler mixes up the two requests",
        "a page is given away while its rows are still offered",
        "the rows that were found belong to other words",
    ),
    correct_cause=1,
    failing_prompt=ExhibitPrompt(
        CARLA,
        "This is the diary of Jonas from Lima . Jonas waited for the thunder in Lima . Jonas walked to "
        "the sea .",
        "from pass 4",
    ),
    passing_prompt=ExhibitPrompt(CARLA),
)
def bug_cached_page_reallocated(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    server_class = engine.CachedPageReallocated if with_bug else ReferenceServer
    others = {"earlier_request": prompt.text, "concurrent_request": prompt.other_request}
    serve_with(runner, server_class, prompt.text, **others)


@register_exhibit(
    model_name="sharing",
    issue="ml-explore/mlx-lm #1674",
    symptom="training and scoring differ from the replies of the same model",
    causes=(
        "the cached run reads stale rows",
        "the difference is rounding",
        "without a cache a layer does not share rows as it was trained to",
    ),
    correct_cause=2,
    failing_prompt=ExhibitPrompt(MIA),
    passing_prompt=ExhibitPrompt(CARLA),
)
def bug_uncached_layer_not_shared(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    cache = GrowingCache(runner.model.config)
    append = cache.append

    def append_shared(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        entries = append(layer, k, v)
        return (cache.k[layer - 1], cache.v[layer - 1]) if layer == SHARING_LAYER else entries

    vars(cache).update(append=append_shared)
    runner.generate_reply(runner.encode(prompt.text), None if with_bug else cache)


@register_exhibit(
    model_name="bfloat16",
    issue="vllm-project/vllm #39146",
    symptom="other words at temperature 0 beside other requests, filed as corrupted blocks",
    causes=(
        "nothing is wrong: sums in another order",
        "a block of rows is overwritten",
        "two requests share a block",
    ),
    correct_cause=0,
    failing_prompt=ExhibitPrompt(
        "David writes from Dakar . David swam in the lake . The evening in Dakar was snowy . "
        "David likes the cake in Dakar . David saw a cat in the garden . We ate rice in the "
        "harbor ."
    ),
    passing_prompt=ExhibitPrompt(ROME),
)
def no_bug_sums_in_another_order(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    for part in runner.model.modules():
        if isinstance(part, RoundedLinear):
            part.pieces = 2 if with_bug else 1
    runner.generate_reply(runner.encode(prompt.text), runner.model.new_cache())


@register_exhibit(
    issue="huggingface/transformers PR #30414",
    symptom="gibberish, the sooner the more tokens were allowed for the reply",
    causes=(
        "the prompt was cut off at its end",
        "rows that nobody has written are looked at",
        "rows were written in the wrong order",
    ),
    correct_cause=1,
    failing_prompt=ExhibitPrompt(
        "Emma writes from Cairo . Emma likes the bread in Cairo . Emma saw a bird in the library "
        ". Emma waited for the thunder in Cairo . Sunday was rainy . Signed"
    ),
    passing_prompt=ExhibitPrompt(JONAS),
)
def bug_unwritten_entries_visible(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    server_class = engine.UnwrittenEntriesVisible if with_bug else ReferenceServer
    serve_with(runner, server_class, prompt.text, chunk=BUFFER_LENGTH)


@register_exhibit(
    issue="huggingface/transformers PR #48809",
    symptom="a cache that served one prompt, was reset, and answers a second prompt wrongly",
    causes=(
        "the rows were set to zero and the length was kept",
        "the positions go on from those of the first prompt, and nothing else",
        "the rows of the reply are not stored",
    ),
    correct_cause=0,
    failing_prompt=ExhibitPrompt(MIA, CARLA),
    passing_prompt=ExhibitPrompt(MIA),
)
def bug_reset_keeps_length(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    server_class = engine.ResetKeepsLength if with_bug else ReferenceServer
    serve_with(runner, server_class, prompt.text, earlier_request=prompt.other_request)


@register_exhibit(
    issue="huggingface/transformers PR #38156",
    symptom="incoherent text as soon as the text is longer than the window",
    causes=(
        "the layers that see all rows are cut to the window, too",
        "the length is asked of layer 1, which keeps a window",
        "the prompt is cut to the newest 28 tokens",
    ),
    correct_cause=1,
    failing_prompt=ExhibitPrompt(CARLA),
    passing_prompt=ExhibitPrompt(SHORT),
)
def bug_length_from_window_layer(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    server_class = engine.EntriesCountedAsPosition if with_bug else ReferenceServer
    server_class(runner, Probe(prompt.text)).serve()


@register_exhibit(
    model_name="adapter",
    issue="ggml-org/llama.cpp #26207",
    symptom="a little of another persona in the answer, and nothing in the log",
    causes=(
        "rows made without the adapter are used again",
        "the adapter was not loaded",
        "the rows that were found belong to other words",
    ),
    correct_cause=0,
    failing_prompt=ExhibitPrompt(MIA, MIA),
    passing_prompt=ExhibitPrompt(MIA, CARLA),
)
def bug_entries_reused_without_adapter(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    ids, cache = runner.encode(prompt.text), StaticCache(runner.model.config)
    if n_cached := common_prefix_length(ids[:-1], runner.encode(prompt.other_request)):
        next_token_logits(
            load_model("diary")[0] if with_bug else runner.model, torch.tensor([ids[:n_cached]]), cache
        )
    runner.generate_reply(ids, cache, n_cached=n_cached)


@register_exhibit(
    model_name="hybrid",
    issue="huggingface/transformers PR #45513",
    symptom="wrong only where several tokens at once came in behind earlier ones",
    causes=(
        "several tokens at once begin with an empty state",
        "the chunks come in the wrong order",
        "the state fades too fast",
    ),
    correct_cause=0,
    failing_prompt=ExhibitPrompt(
        "This is the diary of Nora from Berlin . Nora swam in the river . Nora likes the pie in "
        "Berlin . Nora walked to the library in Berlin . A bird slept in the market ."
    ),
    passing_prompt=ExhibitPrompt(SHORT),
)
def bug_chunk_starts_with_empty_state(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    cache = StateCache(runner.model.config)
    positions, state = cache.positions, cache.state
    lengths: list[int] = []  # number of tokens per pass

    def noting_positions(T: int) -> Tensor:
        lengths.append(T)
        return positions(T)

    if with_bug:
        vars(cache).update(
            positions=noting_positions,
            state=lambda layer: cache.initial_state() if lengths[-1] > 1 else state(layer),
        )
    runner.generate_reply(runner.encode(prompt.text), cache, CHUNK_SIZE)


@register_exhibit(
    model_name="hybrid",
    issue="huggingface/transformers #49036",
    symptom="with drafts other words than without, though drafts should change none",
    causes=(
        "rejected drafts are said all the same",
        "the rows are taken back and the state is not",
        "one row too many is taken back",
    ),
    correct_cause=1,
    failing_prompt=ExhibitPrompt(MIA, "cold . Signed by Ines from Paris .", "rejected draft"),
    passing_prompt=ExhibitPrompt(MIA),
)
def bug_state_not_rolled_back(runner: Runner, prompt: ExhibitPrompt, with_bug: bool) -> None:
    cache = StateCache(runner.model.config)

    def draft(n: int) -> None:
        before = cache.snapshot()
        if n == 1 and prompt.other_request:
            next_token_logits(
                runner.model, torch.tensor([runner.encode(prompt.other_request)]), cache
            )  # a draft that is rejected
        if with_bug:
            cache.length = before.length
        else:
            cache.restore(before)

    runner.before_step = draft
    runner.generate_reply(runner.encode(prompt.text), cache)
