"""A desk that serves a text with our decoder and writes its trace, also where the cache is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import KVCache
from helpers.model.generate import run, to_numpy
from helpers.model.transformer import Transformer
from helpers.recording.model import as_array, describe, tokens_of, voice_of
from helpers.recording.recorder import attention_weights
from helpers.sampling import GREEDY
from helpers.tokenizer import Tokenizer
from helpers.trace import FULL, Output, Part, Pass, Run, TokenSequence, Trace, gather, weight_key

Hook = Callable[..., None]
Repair = Callable[..., Any] | None


class Ask(NamedTuple):
    """A text that somebody sends, and what somebody else ran before it, or when else."""

    text: str
    before: str = ""
    when: str = "before it"


class Desk:
    """Runs passes, and writes down who looked at whom and what each head made of it; it checks nothing.

    A `Recorder` refuses a pass whose rows are not those that it has counted, so it would refuse most of the
    museum. Here a token is named by its place in the text, whatever the cache takes for its position.

    Args:
        model: who answers.
        tokenizer: its words.
        n: tokens of a reply.
        told: ids that the reply is made to say, so that two runs can be compared behind the same words;
            without them it says the likeliest.
        repair: a reader's function, for an exhibit that asks for one.

    Attributes:
        said: ids of the reply so far.
        logits: what each of them was chosen from, (V,).
        trace: the record of the passes, for `compare`.
        between: is called before each step with how many words were said: what else goes on then.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        n: int,
        told: Sequence[int] = (),
        repair: Repair = None,
    ) -> None:
        self.model, self.tokenizer, self.n, self.told, self.repair = model, tokenizer, n, told, repair
        self.voice, self.tokens = voice_of(model, tokenizer, 5, GREEDY), TokenSequence(0, [])
        layers, heads = range(model.config.n_layers), range(model.config.n_heads)
        recorded = [(layer, head) for layer in layers for head in heads]
        self.trace = Trace(describe(model), recorded, [self.tokens], [Run("reply", "museum", [])])
        self.said: list[int] = []
        self.logits: list[Tensor] = []
        self.between: Callable[[int], None] = lambda said: None
        self.ran = 0

    def ids(self, text: str) -> list[int]:
        """Return a text as ids."""
        return self.tokenizer.encode(text)

    @property
    def words(self) -> str:
        """The reply as text."""
        return " ".join(self.tokenizer.words(self.said))

    def reply(
        self, ids: Sequence[int], cache: Callable[[], KVCache] | KVCache, chunk: int = 2048, ran: int = 0
    ) -> None:
        """Run a prompt in chunks, and then a step for each further token of the reply.

        Args:
            ids: the whole prompt.
            cache: one for all passes; or what makes one for each pass, which then runs the whole text again.
            chunk: tokens of a pass at most.
            ran: tokens whose rows the cache holds.
        """
        self.tokens.tokens += tokens_of(self.model, ids, self.tokenizer)
        self.tokens.prompt, self.ran, text = len(ids), ran, [*ids]
        for at in range(ran, len(text), chunk):
            logits = self.step(text[: at + chunk], cache)
        while self.choose(logits):
            self.between(len(self.said))
            text.append(self.said[-1])
            logits = self.step(text, cache)

    def step(self, text: Sequence[int], cache: Callable[[], KVCache] | KVCache) -> Tensor:
        """Run what of a text has not run yet, or all of it where there is no cache; return logits, (V,)."""
        if isinstance(cache, KVCache):
            return self.run(text[self.ran :], cache, again=0)
        return self.run(text, cache(), again=self.ran)

    def run(self, ids: Sequence[int], cache: KVCache, again: int) -> Tensor:
        """Run one pass, of which the first `again` tokens have run before; return the newest logits, (V,)."""
        new = range(self.ran, self.ran + len(ids) - again)
        part = Part(0, gather(new), [], [], [], (0, 0), [], None, {}, [])
        phase = "decode" if new.start >= self.tokens.prompt else "prefill"
        with ExitStack() as hooks:
            for layer, block in enumerate(self.model.layers):
                attention = block.get_submodule("self_attn")
                result = attention.get_submodule("o_proj").register_forward_pre_hook(
                    self.made(part, layer, new)
                )
                hooks.enter_context(result)
                for core in filter(lambda part: isinstance(part, Core), attention.modules()):
                    hooks.enter_context(core.register_forward_hook(self.looked(part, layer, new)))
            logits = run(self.model, torch.tensor([[*ids]]), cache)[0]
        self.trace.runs[0].events.append(Pass(phase, [part], [], {}))
        self.ran = new.stop
        return logits

    def made(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that writes down the context of each head of a layer, for the new tokens."""

        def hook(module: Any, given: tuple[Tensor, ...]) -> None:
            contexts = as_array(given[0][0, -len(new) :]).reshape(len(new), self.trace.model.n_heads, -1)
            for head in range(contexts.shape[1]):
                part.contexts[f"{layer}.{head}"] = contexts[:, head].tolist()

        return hook

    def looked(self, part: Part, layer: int, new: range) -> Hook:
        """Return a hook that writes down which rows the new tokens look at, and how much at each."""

        def hook(core: Any, given: tuple[Tensor, ...], contexts: Tensor) -> None:
            q, k, _, mask = map(as_array, given)
            k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
            seen = np.broadcast_to(mask, (1, 1, *mask.shape[-2:]))[0, 0, -len(new) :]
            weights = attention_weights(q[:, :, -len(new) :] @ k.swapaxes(-1, -2) * core.scale, seen)[0]
            stored = np.round(weights * FULL).astype(np.uint16)
            if not layer:
                part.visible = [gather(np.flatnonzero(row)) for row in seen]
            for head, rows in enumerate(stored):
                for token, row, visible in zip(new, rows, seen, strict=True):
                    self.trace.weights[weight_key(0, token, layer, head)] = row[visible]

        return hook

    def choose(self, logits: Tensor) -> bool:
        """Take the next token of the reply, and return whether it goes on."""
        chosen = self.told[len(self.said)] if self.told else int(logits.argmax())
        top = self.voice.top(to_numpy(logits[None]), chosen)
        place, [out] = len(self.tokens.tokens), [self.trace.runs[0].passes[-1].parts[0].out]
        out.append(Output(place - 1, top, place, self.voice.how))
        self.tokens.tokens.append(self.voice.token(chosen, place))
        self.said.append(chosen)
        self.logits.append(logits)
        return len(self.said) < (len(self.told) or self.n) and chosen not in self.model.config.eos_ids
