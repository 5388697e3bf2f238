"""Run an exhibit's prompt with a decoder, and record a trace even if the cache is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import Cache
from helpers.model.generate import next_token_logits, to_numpy
from helpers.model.transformer import Transformer
from helpers.recording.model import as_array, prompt_tokens, token_selection, trace_model_info
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
MaskFunction = Callable[[int, int, int], Any]


class ExhibitPrompt(NamedTuple):
    """A prompt, and what else is served, if anything.

    Attributes:
        text: the prompt.
        other_request: the prompt of another request, or the words of a rejected draft, or "".
        other_request_time: a phrase that says when the other request runs, such as "before it".
    """

    text: str
    other_request: str = ""
    other_request_time: str = "before it"


class Runner:
    """A decoding loop that records attention weights and contexts without checking the cache.

    A `Recorder` would raise errors for most exhibits: for wrong KV entries, and for masks that differ between
    layers. A `Runner` identifies a token by its index in the sequence, whatever position the cache gives it.
    It identifies a KV entry by its column in the mask.

    Args:
        model: the model that answers.
        tokenizer: its tokenizer.
        n_tokens: maximum number of tokens in the reply.
        forced_ids: token ids of the reply, so that two runs of the same tokens can be compared. If empty,
            each step chooses the most probable token.
        mask_function: a reader's function that computes the mask from (T, length, pads), or None.

    Attributes:
        output_ids: the token ids of the reply so far.
        logits: for each token of the reply, the logits from which it was chosen, of shape (V,).
        trace: the trace of all passes, for `compare`.
        recorded: for each pass and layer, a dict of tensors with a row for each new token: "visible tokens"
            (1 or 0 for each KV entry), "attention weights" and "context".
        before_step: a function called before each decode step with the number of tokens in the reply so far;
            used to run other requests.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        n_tokens: int,
        forced_ids: Sequence[int] = (),
        mask_function: MaskFunction | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.n_tokens, self.forced_ids, self.mask_function = n_tokens, forced_ids, mask_function
        self.selection, self.tokens = token_selection(model, tokenizer), TokenSequence(0, [])
        layers, heads = range(model.config.n_layers), range(model.config.n_heads)
        recorded = [(layer, head) for layer in layers for head in heads]
        self.trace = Trace(trace_model_info(model), recorded, [self.tokens], [Run("reply", "museum", [])])
        self.output_ids: list[int] = []
        self.logits: list[Tensor] = []
        self.recorded: list[list[dict[str, Tensor]]] = []
        self.before_step: Callable[[int], None] = lambda n: None
        self.n_computed = 0

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self.tokenizer.encode(text)

    @property
    def reply_text(self) -> str:
        """The words of the reply, separated by spaces."""
        return " ".join(self.tokenizer.words(self.output_ids))

    def generate_reply(
        self, ids: Sequence[int], cache: Cache | None, chunk: int = 2048, n_cached: int = 0
    ) -> None:
        """Run a prompt in chunks, then run one decode step for each token of the reply after the first.

        Args:
            ids: the token ids of the whole prompt.
            cache: the cache that all passes use. If None, each pass runs the whole sequence again.
            chunk: maximum number of tokens per prefill pass.
            n_cached: number of tokens at the start of the prompt whose KV entries are already in the cache.
        """
        self.tokens.tokens += prompt_tokens(self.model.config.vocab_size, ids, self.tokenizer)
        self.tokens.prompt, self.n_computed, text = len(ids), n_cached, [*ids]
        for start in range(n_cached, len(text), chunk):
            logits = self.run_pass(text[: start + chunk], cache)
        while self.append_token(logits):
            self.before_step(len(self.output_ids))
            text.append(self.output_ids[-1])
            logits = self.run_pass(text, cache)

    def run_pass(self, ids: Sequence[int], cache: Cache | None) -> Tensor:
        """Run the tokens of `ids` that are not in the cache yet; without a cache, run all of them.

        Return the last token's logits, of shape (V,).
        """
        new = range(self.n_computed, len(ids))
        part = Part(0, ranges_of_indices(new), [], [], [], (0, 0), [], None, {}, [])
        phase = "decode" if new.start >= self.tokens.prompt else "prefill"
        inputs = [*ids] if cache is None else [*ids[new.start :]]
        self.recorded.append([{} for _ in self.model.layers])
        with ExitStack() as hooks:
            for layer, block in enumerate(self.model.layers):
                attention = block.get_submodule("self_attn")
                output = attention.get_submodule("o_proj")
                hooks.enter_context(output.register_forward_pre_hook(self.context_hook(part, layer, new)))
                for core in filter(lambda module: isinstance(module, Core), attention.modules()):
                    hooks.enter_context(core.register_forward_hook(self.weights_hook(part, layer, new)))
            logits = next_token_logits(self.model, torch.tensor([inputs]), cache or self.model.new_cache())[0]
        self.trace.runs[0].passes.append(Pass(phase, [part], [], {}))
        self.n_computed = new.stop
        return logits

    def context_hook(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that records the new tokens' contexts in each head of a layer."""

        def hook(module: Any, args: tuple[Tensor, ...]) -> None:
            self.recorded[-1][layer]["context"] = args[0][0, -len(new) :]
            contexts = as_array(args[0][0, -len(new) :]).reshape(len(new), self.trace.model.n_heads, -1)
            for head in range(contexts.shape[1]):
                part.contexts[f"{layer}.{head}"] = contexts[:, head].tolist()

        return hook

    def weights_hook(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that records the new tokens' attention weights in each head of a layer.

        In layer 0, the hook also records which KV entries each new token may attend to.
        """

        def hook(core: Any, args: tuple[Tensor, ...], contexts: Tensor) -> None:
            q, k, _, mask = map(as_array, args)
            k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
            visible = np.broadcast_to(mask, (1, 1, *mask.shape[-2:]))[0, 0, -len(new) :]
            weights = attention_weights(q[:, :, -len(new) :] @ k.swapaxes(-1, -2) * core.scale, visible)[0]
            self.recorded[-1][layer]["visible tokens"] = torch.tensor(visible).float()
            self.recorded[-1][layer]["attention weights"] = torch.tensor(weights.swapaxes(0, 1))
            stored = np.round(weights * WEIGHT_SCALE).astype(np.uint16)
            if not layer:
                part.visible = [ranges_of_indices(np.flatnonzero(row)) for row in visible]
            for head, rows in enumerate(stored):
                for token, row, mask_row in zip(new, rows, visible, strict=True):
                    self.trace.weights[weight_key(0, token, layer, head)] = row[mask_row]

        return hook

    def append_token(self, logits: Tensor) -> bool:
        """Choose a token from the logits, append it to the reply, and return whether the reply continues."""
        chosen = self.forced_ids[len(self.output_ids)] if self.forced_ids else int(logits.argmax())
        top = self.selection.top_candidates(to_numpy(logits[None]), chosen)
        place, [out] = len(self.tokens.tokens), [self.trace.runs[0].passes[-1].parts[0].out]
        out.append(Output(place - 1, top, place, self.selection.method))
        self.tokens.tokens.append(self.selection.generated_token(chosen, place))
        self.output_ids.append(chosen)
        self.logits.append(logits)
        return (
            len(self.output_ids) < (len(self.forced_ids) or self.n_tokens)
            and chosen not in self.model.config.eos_ids
        )
