"""Record the passes of a model that something else drives: a reply with drafts, or an engine's requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import KVCache
from helpers.model.transformer import Transformer
from helpers.recording.loop import Voice
from helpers.recording.model import (
    as_array,
    attended,
    cores_of,
    describe,
    kind_of,
    tokens_of,
    voice_of,
)
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, Sampling
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, TraceError

Who = Callable[[Any], Sequence[int]]
N_TOP = 5  # candidates kept of each row of logits


def record_reply(
    model: Transformer,
    prompt: str | Sequence[int],
    reply: Callable[[list[int], KVCache], Iterable[int]],
    tokenizer: Tokenizer | None = None,
    *,
    recorded: Sequence[tuple[int, int]] | None = None,
    sampling: Sampling = GREEDY,
) -> Trace:
    """Record the passes of the model behind a reply, drafts among them; those of a draft model are left out.

    Args:
        reply: starts it, given the prompt's ids and the cache; it may be `generate`, or `speculate`, as in
            `lambda ids, cache: speculate(model, ids, 24, LookUp(), cache=cache)`.
        sampling: how the reply chooses its tokens, for the record.

    Other arguments and errors as in `record_model`.
    """
    tokens, voice = tokens_of(model, prompt, tokenizer), voice_of(model, tokenizer, N_TOP, sampling)
    cache, recorder = model.fitting(None, 1), Recorder(describe(model), [tokens], recorded=recorded)
    recorder.begin_run("cached", kind_of(cache))
    with Watcher(recorder, model, lambda seen: [0] * (seen is cache), voice) as watcher:
        for token in reply([token.id for token in tokens if token.id is not None], cache):
            watcher.say(token)
    return recorder.trace


def record_engine(
    engine: Any,
    tokenizer: Tokenizer | None = None,
    *,
    recorded: Sequence[tuple[int, int]] | None = None,
) -> Trace:
    """Run the requests that wait in an engine until all are done; each is a sequence of the trace.

    Args:
        engine: a `serve.Engine` without sharing: rows that another request wrote are not in a text's trace.

    Other arguments as in `record_model`. A request that had to give up its pages drops its rows where it
    runs again.
    """
    requests = [one.request for one in engine.scheduler.waiting]
    number = {request.id: n for n, request in enumerate(requests)}
    prompts = [tokens_of(engine.model, request.prompt, tokenizer) for request in requests]

    def who(cache: Any) -> list[int]:
        owners = {id(one.table): number[one.request.id] for one in engine.scheduler.running}
        return [owners[id(table)] for table in cache.tables]

    recorder = Recorder(describe(engine.model), prompts, recorded=recorded)
    recorder.begin_run("cached", "paged")
    voice = voice_of(engine.model, tokenizer, N_TOP, GREEDY)
    with Watcher(recorder, engine.model, who, voice) as watcher:
        while engine.scheduler.waiting or engine.scheduler.running:
            for key, token in engine.step().items():
                n = number[key]
                watcher.say(token, str(requests[n].sampling), n)
    return recorder.trace


class Watcher:
    """While it is entered, passes of a model are recorded; `say` tells it what came of them.

    A pass runs tokens of the text so far, and then drafts: those that `say` has not told of.

    Args:
        recorder: has begun a run.
        model: whose passes they are.
        who: given a pass's cache, the sequence in each row of its batch; nobody, and it is not recorded.
        voice: of its tokens.
    """

    def __init__(self, recorder: Recorder, model: Transformer, who: Who, voice: Voice) -> None:
        self.recorder, self.model, self.who, self.voice = recorder, model, who, voice
        self.sequences = recorder.trace.sequences
        # The text of each sequence: rejected drafts are not in it.
        self.text = {n: list(range(one.prompt)) for n, one in enumerate(self.sequences)}
        self.asked: dict[int, list[int]] = {}  # of the last pass, the queries whose logits may give a token
        self.logits: dict[int, np.ndarray] = {}  # of the last pass, (T, V), or the last row alone
        self.batch: list[int] = []  # sequences of the pass that runs now

    def __enter__(self) -> Watcher:
        self.hooks = ExitStack()
        for core in cores_of(self.model):
            self.hooks.enter_context(core.register_forward_hook(self.attended))
        self.hooks.enter_context(self.model.register_forward_pre_hook(self.before))
        self.hooks.enter_context(self.model.register_forward_hook(self.after))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trail: TracebackType | None) -> None:
        self.hooks.close()
        if error is None:
            self.recorder.settle()

    def before(self, model: Any, given: tuple[Any, ...]) -> None:
        """Open the pass. A model of the first layers has these hooks too: not its passes."""
        self.batch = [*self.who(given[1])] if model is self.model else []
        if not self.batch:
            return
        ids, cache = given[:2]
        B, T = ids.shape
        rows = zip(cache.new_of(T), cache.positions(T).expand(B, T).tolist(), ids.tolist(), strict=True)
        tokens = {
            n: self.tokens_at(at[T - new :], row[T - new :], n)
            for n, (new, at, row) in zip(self.batch, rows, strict=True)
        }
        self.recorder.open_pass(self.phase(tokens), tokens, cache)

    def tokens_at(self, at: list[int], ids: list[int], n: int) -> list[int]:
        """Return which tokens of a sequence these ids are, by place; those not told are drafts."""
        tokens, text = self.sequences[n].tokens, self.text[n]
        run = [text[place] for place in at if place < len(text)]
        self.asked[n] = run[-1:]
        for place, i in zip(at[len(run) :], ids[len(run) :], strict=True):
            self.asked[n].append(len(tokens))
            run.append(len(tokens))
            tokens.append(self.voice.token(i, place, "draft"))
        if at[:1] > [len(text)] or [tokens[i].id for i in run] != ids:
            raise TraceError(f"sequence {n} runs ids {ids} at {at}; expected its text: `say` each token")
        return run

    def phase(self, tokens: dict[int, list[int]]) -> str:
        """Return what a pass is called: it verifies drafts, or decodes one token of a reply, or prefills."""
        if any(len(self.asked[n]) > 1 for n in tokens):
            return "verify"
        ones = [len(run) == 1 and run[0] >= self.sequences[n].prompt for n, run in tokens.items()]
        return "decode" if any(ones) else "prefill"

    def attended(self, core: Core, given: tuple[Tensor, ...], contexts: Tensor) -> None:
        """Show the recorder what went into the core of attention, if the pass is recorded."""
        if self.batch:
            attended(self.recorder, core, given, contexts)

    def after(self, model: Any, given: tuple[Any, ...], logits: Tensor) -> None:
        """Close the pass, and keep its logits until `say` tells what came of them."""
        if self.batch:
            self.recorder.close_pass()
            self.logits |= zip(self.batch, as_array(logits), strict=True)
            self.batch = []

    def say(self, chosen: int, how: str = "", sequence: int = 0) -> None:
        """Tell the next token of a sequence; of a pass with drafts several may come, one after another."""
        left, text = self.asked[sequence], self.text[sequence]
        row, query = self.logits[sequence][-len(left)], left.pop(0)
        token, top = self.voice.token(chosen, len(text)), self.voice.top(row, chosen)
        text.append(self.recorder.say(top, token, how or self.voice.how, sequence=sequence, query=query))
