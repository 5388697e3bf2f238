"""Record the four-head toy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers import toy
from helpers.arguments import check_whole
from helpers.recording.loop import Watched, record_run
from helpers.recording.recorder import Recorder
from helpers.sampling import Chooser, chooser, say_settings, softmax
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
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
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
        temperature: sample at this temperature, with top_k, top_p and seed; None is greedy.

    Raises:
        ValueError: a wrong prompt (see `toy.check_prompt`) or setting.
    """
    words, carried = toy.check_prompt(tokens, numbers)
    n_layers, max_new = check_whole("n_layers", n_layers), check_whole("max_new", max_new)
    if form not in ("dots", "rules"):
        raise ValueError(f"form is {form!r}; expected 'dots' or 'rules'")
    choose = chooser(len(VOCABULARY), temperature, top_k, top_p, seed)
    how = say_settings(temperature, top_k, top_p) + (f", {EOS} banned" if ban_eos else "")
    rules = form == "rules"
    prompt = [Token(word, None, n, "prompt") for n, word in enumerate(words, 1)]
    recorder = Recorder(_describe(n_layers, rules), prompt, values=True)
    decoder = ToyDecoder(recorder, carried, rules, ban_eos, choose, how)
    if not rules:
        cache = KVCache(n_layers)
        cache.positions(len(words) + max_new - 1)  # raises before the run if they do not fit
        record_run(recorder, decoder, cache, "growing", max_new, training)
    record_run(recorder, decoder, None, "none", max_new, training)
    return recorder.finish()


def _describe(n_layers: int, rules: bool) -> Model:
    """What a trace says of the toy; its rules have no keys."""
    k_dim, scale = (None, None) if rules else (2, 1.0)
    return Model("toy", n_layers, len(HEADS), 1, k_dim, 1, scale, list(HEADS), 8)


class ToyDecoder:
    """The toy as the recording loop runs it; arguments as in `record_toy`."""

    def __init__(
        self, recorder: Recorder, carried: np.ndarray, rules: bool, ban_eos: bool, choose: Chooser, how: str
    ) -> None:
        self.recorder, self.rules, self.carried = recorder, rules, carried
        self.banned = np.array([ban_eos and word == EOS for word in VOCABULARY])
        self.chooser, self.how = choose, how
        self.layer = 0

    def run(self, tokens: Sequence[Token], cache: KVCache | None) -> np.ndarray:
        """Run tokens through all layers; without a cache through one that is dropped. Logits, (V,)."""
        n_layers, P = self.recorder.trace.model.n_layers, len(self.carried)
        numbers = [self.carried[t.position - 1] if t.position <= P else NUMBERS[t.text] for t in tokens]
        kept = KVCache(n_layers, len(tokens)) if cache is None else cache
        watched: KVCache = Watched(kept, self.appended)  # type: ignore[assignment]
        contexts = toy.run_pass(numbers, watched, n_layers=n_layers, attention=self.attention)
        return toy.readout(contexts[-1])

    def appended(self, layer: int, k: np.ndarray, v: np.ndarray) -> None:
        """Hand new rows on in the layout of a real model, (batch, heads, rows, width)."""
        self.layer = layer
        self.recorder.append(layer, None if self.rules else k[None, None], v[None, None, :, None])

    def attention(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Attend as the toy does, and show the recorder what went in and what came out."""
        core = toy.attention_by_rules if self.rules else toy.attention
        contexts = core(q, k, v, mask)
        nothing = self.rules  # no queries, keys or sink
        self.recorder.attention(
            self.layer,
            q=None if nothing else q[None],
            k=None if nothing else k[None, None],
            v=v[None, None, :, None],
            mask=mask,
            scale=None if nothing else 1.0,
            sink=None if nothing else SINK,
            output=contexts.T[None, ..., None],
            scores=toy.rule_scores(len(v))[None] if nothing else None,
        )
        return contexts

    def choose(self, logits: np.ndarray) -> int:
        """Choose the next word, never a banned one."""
        return self.chooser(np.where(self.banned, -np.inf, logits))

    def token(self, index: int, position: int) -> Token:
        """Make the token of a chosen word."""
        return Token(VOCABULARY[index], None, position, "generated")

    def index_of(self, token: Token) -> int:
        """Return the index of a word of the vocabulary."""
        return VOCABULARY.index(token.text)

    def top(self, logits: np.ndarray, index: int) -> list[tuple[str, float, float]]:
        """Return all four words, in the vocabulary's order."""
        return list(zip(VOCABULARY, map(float, logits), map(float, softmax(logits)), strict=True))

    def is_over(self, token: Token, cache: KVCache | None) -> bool:
        """Whether the word was `<eos>`."""
        return token.text == EOS
