"""The exhibits of the museum.

Each consists of a bug report, three possible causes, and a function that answers a prompt with or without the
bug.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, StaticCache, WindowCache
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
    symptom="in our copy, the answer reads as if most of the prompt were not there",
    found="by a reviewer of another change, of speculative decoding",
    causes=(
        "the second piece is rotated by the positions of the first",
        "the KV entries of the second piece replace those of the first",
        "a token of the second piece attends to the oldest entries, not to all before it",
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
    symptom="the first token is right, and every later one drifts",
    found="by a contributor who was repairing something close to it",
    causes=(
        "the reply is rotated by positions from 0",
        "the padding is hidden in prefill and visible in decode steps",
        "the newest KV entry is not stored",
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
    symptom="right on short texts, and on long ones worse with each token",
    found="by the maintainer, who was repairing another bug of the same four caches",
    causes=(
        "one entry too many is dropped",
        "keys are stored unrotated, and are never rotated",
        "the number of entries kept is taken for the position",
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
    issue="sgl-project/mini-sglang PR #142",
    symptom="wrong output after a hit in the prefix cache, if other requests come in",
    found="by a contributor; the thread does not say how",
    causes=(
        "the sampler mixes up the two requests",
        "a page that is still in use is given to another request",
        "the entries that were found belong to other words",
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
    symptom="training and scoring compute something else than the replies of the same model",
    found="by somebody who read the code, and then built a small case that shows it",
    replies=("with a cache", "without"),
    causes=(
        "the run with a cache reads stale entries",
        "the difference is rounding",
        "without a cache, layer 4 does not use the entries of layer 3",
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
    symptom="different words at temperature 0 if other requests run; reported as corrupted blocks",
    found="by a user's program that sends many variants of a load and compares the replies",
    replies=("one sum", "two halves"),
    causes=(
        "nothing is wrong: sums are added up in a different order",
        "a block of KV entries is overwritten",
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
    symptom="gibberish if the reply may have many tokens, and good text if it may have few",
    found="by a developer of the library, who tried three lengths",
    causes=(
        "the prompt was cut off at its end",
        "entries that were never written are attended to",
        "entries were written in the wrong order",
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
    symptom="a cache serves one prompt, is reset, and answers a second prompt wrongly",
    found="by two contributors in one month, who tried the public method",
    causes=(
        "the entries were set to zero and the length was kept",
        "the positions continue from those of the first prompt, and nothing else is wrong",
        "the entries of the reply are not stored",
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
    found="by a user, who called the model without the library's own loop",
    causes=(
        "the layers that keep all entries are cut to the window as well",
        "the length is asked of layer 1, which keeps only a window",
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
    symptom="the answer has a touch of another persona, and the log shows nothing",
    found="by a user, who serves several personas with one model",
    causes=(
        "entries computed without the adapter are used again",
        "the adapter was not loaded",
        "the entries that were found belong to other words",
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
