"""Record the four-head toy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers import toy
from helpers.arguments import check_whole
from helpers.recording.loop import Watched, record_run
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, Chooser, Sampling, chooser, softmax
from helpers.toy import EOS, HEADS, NUMBERS, PROMPT, SINK, VOCABULARY, KVCache
from helpers.trace import Model, Token, Trace


def record_toy(
    tokens: Sequence[str] = PROMPT,
    numbers: Sequence[float] | None = None,
    *,
    n_layers: int = 1,
    max_new: int = 8,
    ban_eos: bool = False,
    training: bool = True,
    form: str = "dots",
    sampling: Sampling = GREEDY,
) -> Trace:
    """Run a prompt with the cache, then again without it, and return the record of both runs.

    Args:
        tokens: 1 to 512 pieces of text.
        numbers: what they carry; None looks each token up in NUMBERS.
        n_layers: layers of the toy.
        max_new: tokens to generate at most; it stops earlier at `<eos>`.
        ban_eos: never choose `<eos>`: the long run.
        training: begin each run with the training reference, as pass 0.
        form: "dots" runs keys and values through a cache; "rules" runs the rules of notebooks 01 to 03,
            which have no keys: its one run is the one without a cache.
        sampling: how words are chosen.

    Raises:
        ValueError: a wrong prompt (see `toy.check_prompt`) or setting.
    """
    words, carried = toy.check_prompt(tokens, numbers)
    n_layers, max_new = check_whole("n_layers", n_layers), check_whole("max_new", max_new)
    if form not in ("dots", "rules"):
        raise ValueError(f"form is {form!r}; expected 'dots' or 'rules'")
    choose = chooser(sampling, len(VOCABULARY))
    how = str(sampling) + (f", {EOS} banned" if ban_eos else "")
    rules = form == "rules"
    cache = KVCache(n_layers)
    if not rules:
        cache.positions(len(words) + max_new - 1)  # raises before the run if they do not fit
    prompt = [Token(word, None, n, "prompt") for n, word in enumerate(words, 1)]
    k_dim, scale = (None, None) if rules else (2, 1.0)
    model = Model("toy", n_layers, len(HEADS), 1, k_dim, 1, scale, list(HEADS), 8)
    recorder = Recorder(model, [prompt], values=True)
    decoder = ToyDecoder(recorder, carried, rules, ban_eos, choose, how)
    for one in (None,) if rules else (cache, None):
        record_run(recorder, decoder, one, "growing", max_new, training)
    return recorder.trace


@dataclass
class ToyDecoder:
    """The toy as the recording loop runs it; arguments as in `record_toy`."""

    recorder: Recorder
    carried: np.ndarray
    rules: bool
    ban_eos: bool
    choose: Chooser
    how: str

    def run(self, tokens: Sequence[Token], cache: KVCache | None) -> np.ndarray:
        """Run tokens through all layers; without a cache through one that is dropped. Logits, (V,)."""
        n_layers, P = self.recorder.trace.model.n_layers, len(self.carried)
        numbers = [self.carried[t.position - 1] if t.position <= P else NUMBERS[t.text] for t in tokens]
        kept = KVCache(n_layers, len(tokens)) if cache is None else cache
        watched: Any = Watched(kept, self.recorder)
        contexts = toy.run_pass(numbers, watched, n_layers=n_layers, attention=self.attention)
        return toy.readout(contexts[-1])

    def attention(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Attend as the toy does, and show the recorder what went in and what came out, as a batch of one."""
        known: dict[str, Any]
        if self.rules:
            contexts = toy.attention_by_rules(q, k, v, mask)
            known = {"scores": toy.rule_scores(len(v))[None]}
        else:
            contexts = toy.attention(q, k, v, mask)
            known = {"q": q[None], "k": k[None, None], "scale": 1.0, "sink": SINK}
        output = contexts.T[None, ..., None]  # (T, H) → (1, H, T, 1)
        self.recorder.attention(v=v[None, None, :, None], mask=mask, output=output, **known)
        return contexts

    def next_token(self, logits: np.ndarray, position: int) -> Token:
        """Choose the next word, never a banned one, and make its token."""
        banned = np.array([self.ban_eos and word == EOS for word in VOCABULARY])
        word = VOCABULARY[self.choose(np.where(banned, -np.inf, logits))]
        return Token(word, None, position, "generated")

    def top(self, logits: np.ndarray, chosen: Token) -> list[tuple[str, float, float]]:
        """Return all four words, in the vocabulary's order."""
        return list(zip(VOCABULARY, map(float, logits), map(float, softmax(logits)), strict=True))

    def is_over(self, token: Token, cache: KVCache | None) -> bool:
        """Whether the word was `<eos>`."""
        return token.text == EOS
