"""An engine that runs a scheduler's plans with one model. All requests share one pool of pages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch

from helpers.model.cache import PagedCache, PagePool
from helpers.model.config import check_eos
from helpers.model.generate import Tokens, as_tokens
from helpers.model.speculate import Sampler
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Sampling
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, RequestTimes, Sequence


class Engine:
    """An engine that serves requests with one model.

    In each step, all sequences with a single token to run share one pass, with input of shape (B, 1). Each
    sequence with T > 1 tokens to run gets a separate pass, with input of shape (1, T). Production engines on
    a GPU run all of these tokens in one pass.

    `add`, `cancel` and `step` take effect completely or not at all: if one of them raises, even on Ctrl-C, no
    request gains or loses a token.

    The model's parameters and buffers may change between steps. KV entries computed before a change are not
    shared with requests admitted after it. The engine detects a change by the version counters of PyTorch's
    tensors. These counters miss changes made through `.data` and changes to tensors created in inference
    mode, and attributes such as `frequencies`, `scale` and `eps` have no counter. After such an undetected
    change, create a new engine.

    Args:
        model: the model that serves all requests.
        slots: maximum number of requests that run at the same time.
        token_budget: maximum number of tokens in a step; None for no limit.
        n_pages: number of pages in the pool.
        page_size: number of tokens per page.
        prefix_caching: whether requests that begin with the same tokens share the pages of this prefix.
        eos_ids: ids of the tokens that end a reply; None uses those in the model's config.

    Attributes:
        sequences: the sequence of each request, by request id. If an id was used again, the sequence is that
            of the latest request.

    Raises:
        ValueError: the model keeps a recurrent state, or the pool needs more than half of the memory.
    """

    def __init__(
        self,
        model: Transformer,
        slots: int = 8,
        token_budget: int | None = None,
        *,
        n_pages: int = 256,
        page_size: int = 16,
        prefix_caching: bool = True,
        eos_ids: Iterable[int] | None = None,
    ) -> None:
        config, weight = model.config, model.embed_tokens.weight
        if states := getattr(config, "state_layers", ()):
            raise ValueError(
                f"layers {states} of the model keep a recurrent state, and pages hold KV entries; "
                "expected a model without a state: `generate` can run this one"
            )
        ends = check_eos(config.eos_ids if eos_ids is None else eos_ids, config.vocab_size)
        self.model = model
        self.pool = PagePool(config, n_pages, page_size, dtype=weight.dtype, device=weight.device)
        pages = PageManager(n_pages, page_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(pages, slots, token_budget, eos_ids=ends, max_len=config.max_seq_len)
        self.sequences: dict[Hashable, Sequence] = {}
        self.weights, self.weights_version = list[tuple[int, int]](), 0

    def add(self, id: Hashable, prompt: Tokens, max_new_tokens: int, sampling: Sampling = GREEDY) -> None:
        """Add a request to the end of the queue, without running the model.

        Args:
            id: identifies the request among all that are waiting or running.
            prompt: token ids of a single prompt.
            max_new_tokens: maximum number of tokens in the reply.
            sampling: how the tokens of the reply are chosen.

        Raises:
            ValueError: the id is in use; the prompt is empty, or is not one sequence of valid token ids;
                top_k is larger than the vocabulary; or prompt and reply together can become too long for the
                model or the pool.
        """
        V = self.model.config.vocab_size
        tokens = as_tokens(prompt, V)
        if len(tokens) != 1:
            raise ValueError(f"got {len(tokens)} sequences; expected one: add each of them separately")
        request = Request(id, tokens[0].tolist(), max_new_tokens, sampling)
        sampler = Sampler(sampling, V)
        with self.atomic():
            sequence = self.scheduler.add(request)
            sequence.sampler, sequence.times = sampler, RequestTimes(time.perf_counter())
            self.sequences[id] = sequence

    def cancel(self, id: Hashable) -> None:
        """Stop a request and keep its reply so far.

        Raises:
            ValueError: no waiting or running request has this id.
        """
        with self.atomic():
            self.scheduler.cancel(id)

    def step(self) -> dict[Hashable, int]:
        """Run one step; return the id of each new token, by request id.

        A request gets no token if it is waiting, or if its tokens so far have not all run. A request
        whose logits contain NaN or infinity is stopped, and its sequence's `error` is set. The tokens that it
        ran in this step are not recorded as computed, so no other request can reuse their KV entries. The
        other requests continue.
        """
        self.update_extra_keys()
        with self.atomic():
            plan = self.scheduler.schedule()
        logits = self.execute_model(plan)  # new KV entries do not count before `postprocess`
        with self.atomic():
            now, next_tokens = time.perf_counter(), dict[Sequence, int]()
            for sequence, n in plan:
                id = sequence.request.id
                if not np.isfinite(logits[sequence]).all():
                    sequence.error = ValueError(
                        f"the logits of {id!r} contain NaN or infinity; expected finite numbers: "
                        "look for them in the weights"
                    )
                    self.scheduler.cancel(id)
                    continue
                sequence.tokens_per_step.append(n)
                if n < sequence.num_uncomputed_tokens:
                    continue  # this was a chunk: the rest of the text still has to run
                next_tokens[sequence], _ = sequence.sampler.sample(logits[sequence])
                sequence.times = RequestTimes(sequence.times.arrived, [*sequence.times.token_times, now])
            self.scheduler.postprocess([pair for pair in plan if not pair[0].error], next_tokens)
        return {sequence.request.id: token for sequence, token in next_tokens.items()}

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Undo all changes to the scheduler's state if the `with` block raises.

        Restored are the attributes of the scheduler, its page manager, its observer and its sequences, and
        the state of each sequence's random number generator. KV entries in the pool are not restored, so the
        block must not run the model.
        """
        scheduler = self.scheduler
        # No other requests can change in the block.
        sequences = [*scheduler.running, *islice(scheduler.waiting, scheduler.slots)]
        before: list[tuple[Any, dict[str, Any]]] = [
            (part, {k: v.copy() if type(v) in (list, dict, deque) else v for k, v in vars(part).items()})
            for part in (scheduler, scheduler.pages, scheduler.observer, *sequences)
            if part is not None
        ]
        rng_states = [sequence.sampler.rng.bit_generator.state for sequence in sequences]
        try:
            yield
        except BaseException:
            for part, values in before:
                vars(part).update(values)
            for sequence, state in zip(sequences, rng_states, strict=True):
                sequence.sampler.rng.bit_generator.state = state
            raise

    def update_extra_keys(self) -> None:
        """Set the extra key of every waiting request to the current version of the model's weights.

        The version increases by 1 if parameters or buffers have changed since the last check.
        """
        if self.scheduler.waiting:
            tensors = *self.model.parameters(), *self.model.buffers()
            weights = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]
            if weights != self.weights:
                self.weights, self.weights_version = weights, self.weights_version + 1
            for sequence in self.scheduler.waiting:
                sequence.extra_key = self.weights_version

    def execute_model(self, plan: Plan) -> dict[Sequence, np.ndarray]:
        """Run a plan in one or more passes; return each sequence's logits, of shape (V,), by sequence.

        The logits are those at the last of the sequence's tokens in this plan. They depend on all KV entries
        of the sequence: if an entry contains NaN, the logits do, too.
        """
        passes: dict[Sequence | None, Plan] = {}
        for sequence, n in plan:
            passes.setdefault(sequence if n > 1 else None, []).append((sequence, n))
        logits = dict[Sequence, np.ndarray]()
        for batch in passes.values():
            sequences = [sequence for sequence, _ in batch]
            cache = PagedCache(
                self.model.config,
                len(sequences),
                pool=self.pool,
                tables=[sequence.page_table for sequence in sequences],
                lengths=[sequence.num_computed_tokens for sequence in sequences],
            )
            starts = [(sequence, sequence.num_computed_tokens, n) for sequence, n in batch]
            new = [sequence.tokens[start : start + n] for sequence, start, n in starts]
            with torch.inference_mode():
                output = self.model(torch.tensor(new, device=cache.device), cache, last_only=True)
            logits |= zip(sequences, output[:, -1].float().cpu().numpy(), strict=True)
        return logits

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def run_all(self) -> dict[Hashable, list[int]]:
        """Run steps until no request is waiting or running; return each reply's token ids, by request id."""
        while self.has_unfinished_requests:
            self.step()
        return {id: sequence.reply for id, sequence in self.sequences.items()}
