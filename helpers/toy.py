"""The four-head toy: a decoder small enough to work out on paper.

Each token carries one number. Four heads select tokens by simple rules and average their numbers; an LM
head turns the four averages into the next word. Positions count from 1.

The prompt, its four numbers and the four rules come from "From Prompt to Prediction: Understanding
Prefill, Decode, and the KV Cache in LLMs" (Machine Learning Mastery, 2026; its head "last" is
"newest" here). The other words, the LM head, the second layer, the keys and the sink score are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from helpers.sampling import greedy, softmax
from helpers.validate import check_whole, is_number, is_whole

PROMPT = ("Today", "weather", "is", "so")
NUMBERS = {"Today": 10, "weather": 20, "is": 1, "so": 5, "nice": 14, "warm": 12, "delicious": 13}
HEADS = ("even", "newest", "first", "all")
EOS = "<eos>"
VOCABULARY = ("nice", "warm", "delicious", EOS)  # the words it may generate

LM_HEAD = np.array(  # one number for each word and head: (V, H)
    [
        [0.4, -0.2, 0.2, 0.1],  # nice
        [0.4, -0.2, 0.1, 0.1],  # warm
        [0.1, 0.1, 0.0, -0.1],  # delicious
        [0.0, 0.5, 0.0, 0.0],  # <eos>
    ]
)

# How sharply a query selects. e**(-BETA / 2), the weight that the sink would keep, is less than the smallest
# float: it is 0, so the dot products select exactly what the rules select, and a tie remains a tie.
BETA = 2000.0
QUERIES = BETA * np.array([[1, 0], [0, 1], [0, -1], [0, 0]])  # (H, 2), set by hand, one for each head
SINK = np.array([BETA / 2, -np.inf, -np.inf, -np.inf])  # (H,): a score that only `even` has

Numbers = Sequence[float] | np.ndarray

MAX_PROMPT = 512
MAX_NUMBER = 1e9


def four_heads(visible: Numbers) -> list[float]:
    """Return the outputs of the four heads, given the visible numbers, in the order of HEADS."""
    even = visible[1::2]
    return [
        sum(even) / len(even) if len(even) else 0.0,
        visible[-1],
        visible[0],
        sum(visible) / len(visible),
    ]


def rule_scores(T: int) -> np.ndarray:
    """Express the four rules as scores: 0 where a head's rule selects a token, -inf elsewhere.

    Args:
        T: number of tokens.

    Returns:
        (H, T, T), a row for each query token, a column for each key token; without the causal mask.
    """
    scores = np.full((4, T, T), -np.inf)  # four heads, T lines that look, T columns looked at
    scores[0, :, 1::2] = 0  # even: every second column
    np.fill_diagonal(scores[1], 0)  # newest: the newest that a token sees is itself
    scores[2, :, :1] = 0  # first: the first column
    scores[3] = 0  # all
    return scores


def causal_mask(T: int) -> np.ndarray:
    """Return (T, T), True where the query (row) may attend to the key (column): itself and earlier ones."""
    return np.tril(np.ones((T, T), dtype=bool))


def attend(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mask, softmax, average.

    Args:
        scores: (T, T) for one head or (H, T, T) for several, without a mask.
        values: the number of each token, (T,).

    Returns:
        Contexts, (T,) or (H, T); 0 where all tokens are masked.
    """
    masked = np.where(causal_mask(len(values)), scores, -np.inf)
    return softmax(masked) @ values


def prefill_matrix(numbers: Numbers) -> np.ndarray:
    """Compute the table of contexts in one pass, (T, H). ValueError as in `check_numbers`."""
    check_numbers(numbers)
    return attend(rule_scores(len(numbers)), np.asarray(numbers, dtype=float)).T


def lm_head(contexts: np.ndarray) -> np.ndarray:
    """Map contexts (…, H) to logits (…, V), in the order of VOCABULARY."""
    return contexts @ LM_HEAD.T


def look_up(words: Sequence[str]) -> np.ndarray:
    """Return the numbers of known words, (T,). ValueError as in `check_prompt`."""
    return check_prompt(words)[1]


def step(words: Sequence[str]) -> np.ndarray:
    """Run all words, without a cache, and return the logits of the next word, (V,)."""
    return lm_head(prefill_matrix(look_up(words))[-1])


def generate(
    step: Callable[[list[str]], np.ndarray], prompt: Sequence[str], max_new_tokens: int
) -> list[str]:
    """Generate words one after another, until `<eos>` or `max_new_tokens` words.

    Args:
        step: receives all words so far and returns logits, (V,).
        prompt: words.
        max_new_tokens: maximum number of words to generate.

    Returns:
        The new words, including `<eos>` if it was generated.

    Raises:
        ValueError: max_new_tokens is not a whole number over 0.
    """
    check_whole("max_new_tokens", max_new_tokens)
    words = list(prompt)
    while len(words) < len(prompt) + max_new_tokens:
        word = VOCABULARY[greedy(step(words))]
        words.append(word)
        if word == EOS:
            break
    return words[len(prompt) :]


def make_qkv(positions: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the queries, keys and values of T tokens.

    Args:
        positions: (T,), from 1.
        numbers: the number of each token, (T,).

    Returns:
        Queries (H, T, 2), the same at every position; keys (T, 2), [is the position even, position];
        values (T,). One set of keys and values for all four heads: multi-query attention
        (Shazeer 2019, arXiv:1911.02150).
    """
    queries = np.repeat(QUERIES[:, None, :], len(positions), axis=1)
    keys = np.stack([positions % 2 == 0, positions], axis=1).astype(float)
    return queries, keys, numbers


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Dot products, mask, softmax with the sink score, average.

    Args:
        q: (H, T, 2).
        k: (S, 2).
        v: (S,).
        mask: (T, S), True where the query may attend to the key.

    Returns:
        Contexts, (T, H).
    """
    scores = np.where(mask, q @ k.T, -np.inf)
    extra = np.broadcast_to(SINK[:, None, None], (*scores.shape[:2], 1))
    weights = softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    return (weights @ v).T


class KVCache:
    """Keys and values of every token processed so far, a K and a V for each layer.

    Args:
        n_layers: how many layers append to it.
        max_len: maximum number of entries a layer; 1,024 by default.
    """

    def __init__(self, n_layers: int = 1, max_len: int = 1024) -> None:
        self.max_len = max_len
        self.length = 0
        self.k: list[np.ndarray] = [np.zeros((0, 2)) for _ in range(n_layers)]
        self.v: list[np.ndarray] = [np.zeros(0) for _ in range(n_layers)]

    def positions(self, T: int) -> np.ndarray:
        """Return the positions of T new tokens, (T,). ValueError if they do not fit."""
        self.check_capacity(T)
        return np.arange(self.length + 1, self.length + T + 1)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store new entries of one layer, k (T, 2) and v (T,); return all entries so far."""
        self.k[layer] = np.concatenate([self.k[layer][: self.length], k])
        self.v[layer] = np.concatenate([self.v[layer][: self.length], v])
        return self.k[layer], self.v[layer]

    def advance(self, T: int) -> None:
        """Count T tokens as stored; called once a pass, after the last layer."""
        self.length += T

    def check_capacity(self, T: int) -> None:
        """Raise ValueError if T more entries do not fit."""
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new entries after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a KVCache with a larger max_len, or stop here. Nothing was written."
            )

    def mask(self, T: int) -> np.ndarray:
        """Return (T, S): True where a new token (row) may attend to a stored or new one (column)."""
        self.check_capacity(T)
        query = np.arange(self.length + 1, self.length + T + 1)[:, None]
        return np.arange(1, self.length + T + 1) <= query

    def truncate(self, length: int) -> None:
        """Keep the first `length` entries. ValueError if there are fewer."""
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the entries stored")
        self.length = int(length)

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return len(self.k)

    def entry_positions(self, b: int = 0) -> range:
        """Return the positions of the tokens whose entries are stored, from 1; there is one sequence, 0."""
        return range(1, self.length + 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.length} of {self.max_len} entries, layers: {self.n_layers})"


Core = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def run_pass(
    numbers: Numbers, cache: KVCache | None = None, *, n_layers: int = 1, attention: Core = attention
) -> np.ndarray:
    """Run new tokens through every layer; earlier ones are read from the cache.

    Args:
        numbers: of the new tokens, T of them.
        cache: holds the entries of earlier tokens and stores the new ones, in n_layers layers; without a
            cache, there are no earlier tokens.
        n_layers: number of layers to run.
        attention: the core, from queries, keys, values and mask to contexts (T, H).

    Returns:
        The last layer's contexts of the new tokens, (T, H).

    Raises:
        ValueError: no numbers or an invalid one, or the cache is full; nothing has been written.
    """
    x = check_numbers(numbers)
    cache = KVCache(n_layers, len(x)) if cache is None else cache
    positions, mask = cache.positions(len(x)), cache.mask(len(x))
    for layer in range(n_layers):
        q, k, v = make_qkv(positions, x)
        keys, values = cache.append(layer, k, v)
        contexts = attention(q, keys, values, mask)
        x = contexts.mean(axis=1)
    cache.advance(len(positions))
    return contexts


def check_prompt(
    tokens: Sequence[str], numbers: Sequence[float] | None = None
) -> tuple[list[str], np.ndarray]:
    """Return the prompt as (words, the numbers they carry).

    Args:
        tokens: text of each token.
        numbers: one for each token; None looks them up in NUMBERS.

    Raises:
        ValueError: one string instead of a list; an empty or too long prompt; a token that is not a string or
            has no number; unequal counts; or a number that is NaN, infinite or over a billion.
    """
    if isinstance(tokens, str):
        raise ValueError(
            f"the prompt is one text, {tokens!r}; expected a list of tokens: split it, {tokens.split()!r}"
        )
    words = list(tokens)
    if not words:
        raise ValueError(f"the prompt is empty; expected at least one token, such as {list(PROMPT)}")
    if len(words) > MAX_PROMPT:
        raise ValueError(f"the prompt has {len(words)} tokens; expected at most {MAX_PROMPT}: leave some out")
    for n, word in enumerate(words, 1):
        if not isinstance(word, str) or not word:
            raise ValueError(f"token {n} is {word!r}; expected text")
        if numbers is None and word not in NUMBERS:
            raise ValueError(
                f"token {n}, {word!r}, has no number; expected one of {list(NUMBERS)}, "
                "or give a number for each token with numbers=[…]"
            )
    carried = [NUMBERS[word] for word in words] if numbers is None else list(numbers)
    if len(carried) != len(words):
        raise ValueError(
            f"there are {len(words)} tokens and {len(carried)} numbers; expected one number for each token"
        )
    return words, check_numbers(carried)


def check_numbers(numbers: Numbers) -> np.ndarray:
    """Return the numbers of tokens, (T,). ValueError if empty, or if one is NaN, infinite or too large."""
    carried = list(numbers)
    if not carried:
        raise ValueError("there are no numbers; expected one for each token, and at least one")
    for n, number in enumerate(carried, 1):
        if not is_number(number) or abs(number) > MAX_NUMBER:
            raise ValueError(
                f"number {n} is {number!r}; expected a finite number of at most a billion either way"
            )
    return np.array(carried, dtype=float)
