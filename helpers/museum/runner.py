"""Runs an exhibit's prompt with a decoder and writes its trace, even if the cache is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import Cache
from helpers.model.generate import run, to_numpy
from helpers.model.transformer import Transformer
from helpers.recording.model import as_array, model_sizes, prompt_tokens, token_selection
from helpers.recording.recorder import attention_weights
from helpers.tokenizer import Tokenizer
from helpers.trace import (
    WEIGHT_SCALE,
    Output,
    Part,
    Pass,
    Run,
    TokenSequence,
    Trace,
    ranges_of_indices,
    weight_key,
)

Hook = Callable[..., None]
Repair = Callable[..., Any] | None


class Prompt(NamedTuple):
    """A prompt, and the text of another request, with the time at which it runs."""

    text: str
    before: str = ""
    when: str = "before it"


class Runner:
    """Runs passes, and records what each token attended to and each head's contexts; it checks nothing.

    A `Recorder` counts KV entries, and raises for passes with other entries, layers with other masks, and
    layers without attention: for most of the museum. Here a token is named by its place in the text, whatever
    position the cache gives it, and a KV entry by its column.

    Args:
        model: the model that answers.
        tokenizer: its tokenizer.
        n: tokens of the reply.
        forced: ids of the reply, so that two runs with the same words can be compared; without them the most
            likely token is chosen.
        repair: a reader's function, for an exhibit that asks for one.

    Attributes:
        output_ids: the reply so far.
        logits: the logits of each of its tokens, (V,).
        trace: the trace of the passes, for `compare`.
        before_step: is called before each step with the number of new tokens, to run other requests.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        n: int,
        forced: Sequence[int] = (),
        repair: Repair = None,
    ) -> None:
        self.model, self.tokenizer, self.n, self.forced, self.repair = model, tokenizer, n, forced, repair
        self.selection, self.tokens = token_selection(model, tokenizer), TokenSequence(0, [])
        layers, heads = range(model.config.n_layers), range(model.config.n_heads)
        recorded = [(layer, head) for layer in layers for head in heads]
        self.trace = Trace(model_sizes(model), recorded, [self.tokens], [Run("reply", "museum", [])])
        self.output_ids: list[int] = []
        self.logits: list[Tensor] = []
        self.before_step: Callable[[int], None] = lambda n: None
        self.n_computed = 0

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.tokenizer.encode(text)

    @property
    def text(self) -> str:
        """The reply as text."""
        return " ".join(self.tokenizer.words(self.output_ids))

    def reply(self, ids: Sequence[int], cache: Cache | None, chunk: int = 2048, n_cached: int = 0) -> None:
        """Run a prompt in chunks, and then one step for each further token of the reply.

        Args:
            ids: the whole prompt.
            cache: the cache of all passes; with None, each pass runs the whole text again.
            chunk: maximum number of tokens in a pass.
            n_cached: tokens of the prompt whose KV entries are in the cache.
        """
        self.tokens.tokens += prompt_tokens(self.model.config.vocab_size, ids, self.tokenizer)
        self.tokens.prompt, self.n_computed, text = len(ids), n_cached, [*ids]
        for start in range(n_cached, len(text), chunk):
            logits = self.run(text[: start + chunk], cache)
        while self.choose(logits):
            self.before_step(len(self.output_ids))
            text.append(self.output_ids[-1])
            logits = self.run(text, cache)

    def run(self, text: Sequence[int], cache: Cache | None) -> Tensor:
        """Run the new tokens of a text, or all of it without a cache; return the last logits, (V,)."""
        new = range(self.n_computed, len(text))
        part = Part(0, ranges_of_indices(new), [], [], [], (0, 0), [], None, {}, [])
        phase = "decode" if new.start >= self.tokens.prompt else "prefill"
        ids = text if cache is None else text[new.start :]
        with ExitStack() as hooks:
            for layer, block in enumerate(self.model.layers):
                attention = block.get_submodule("self_attn")
                output = attention.get_submodule("o_proj")
                hooks.enter_context(output.register_forward_pre_hook(self.keep_contexts(part, layer, new)))
                for core in filter(lambda module: isinstance(module, Core), attention.modules()):
                    hooks.enter_context(core.register_forward_hook(self.keep_weights(part, layer, new)))
            logits = run(self.model, torch.tensor([[*ids]]), cache or self.model.new_cache())[0]
        self.trace.runs[0].passes.append(Pass(phase, [part], [], {}))
        self.n_computed = new.stop
        return logits

    def keep_contexts(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that records the context of each head of a layer, for the new tokens."""

        def hook(module: Any, args: tuple[Tensor, ...]) -> None:
            contexts = as_array(args[0][0, -len(new) :]).reshape(len(new), self.trace.model.n_heads, -1)
            for head in range(contexts.shape[1]):
                part.contexts[f"{layer}.{head}"] = contexts[:, head].tolist()

        return hook

    def keep_weights(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that records which KV entries the new tokens attend to, and with which weights."""

        def hook(core: Any, args: tuple[Tensor, ...], contexts: Tensor) -> None:
            q, k, _, mask = map(as_array, args)
            k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
            visible = np.broadcast_to(mask, (1, 1, *mask.shape[-2:]))[0, 0, -len(new) :]
            weights = attention_weights(q[:, :, -len(new) :] @ k.swapaxes(-1, -2) * core.scale, visible)[0]
            stored = np.round(weights * WEIGHT_SCALE).astype(np.uint16)
            if not layer:
                part.visible = [ranges_of_indices(np.flatnonzero(row)) for row in visible]
            for head, rows in enumerate(stored):
                for token, row, mask_row in zip(new, rows, visible, strict=True):
                    self.trace.weights[weight_key(0, token, layer, head)] = row[mask_row]

        return hook

    def choose(self, logits: Tensor) -> bool:
        """Choose the next token of the reply; return whether the reply continues."""
        chosen = self.forced[len(self.output_ids)] if self.forced else int(logits.argmax())
        top = self.selection.top_candidates(to_numpy(logits[None]), chosen)
        place, [out] = len(self.tokens.tokens), [self.trace.runs[0].passes[-1].parts[0].out]
        out.append(Output(place - 1, top, place, self.selection.method))
        self.tokens.tokens.append(self.selection.generated_token(chosen, place))
        self.output_ids.append(chosen)
        self.logits.append(logits)
        return len(self.output_ids) < (len(self.forced) or self.n) and chosen not in self.model.config.eos_ids
