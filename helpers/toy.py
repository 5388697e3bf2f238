"""The four-head toy: a decoder small enough to work out on paper.

Each token carries one number. Four heads select tokens by simple rules and average their numbers, and an LM
head turns the four averages into logits of the next word. Positions are counted from 1.

The prompt, its four numbers and the four rules come from "From Prompt to Prediction: Understanding
Prefill, Decode, and the KV Cache in LLMs" (Machine Learning Mastery, 2026), which calls the head "newest"
"last". The other words, the LM head, the second layer, the keys and the sink score are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from helpers.sampling import greedy, softmax
from helpers.validate import check_whole, is_number, is_whole

PROMPT = ("Today", "weather", "is", "so")
NUMBERS = {"Today": 10, "weather": 20, "is": 1, "so": 5, "nice": 14, "warm": 12, "delicious": 13}
EOS = "<eos>"
VOCABULARY = ("nice", "warm", "delicious", EOS)  # the words that the toy can generate

LM_HEAD = np.array(  # one weight for each word and head, (V, H)
    [
        [0.4, -0.2, 0.2, 0.1],  # nice
        [0.4, -0.2, 0.1, 0.1],  # warm
        [0.1, 0.1, 0.0, -0.1],  # delicious
        [0.0, 0.5, 0.0, 0.0],  # <eos>
    ]
)

# Each head's query, set by hand; a key is [1 if the position is even, else 0; the position]. The scores of
# two tokens differ by 40 or more, or not at all, so a token that a rule does not select keeps a weight of at
# most e**-40, which is less than the rounding error of a float.
QUERIES = {"even": [80, 0], "newest": [0, 40], "first": [0, -40], "all": [0, 0]}
# The score of each head's sink, which takes the weight where no token scores more; only `even` has a sink.
SINK = {"even": 40, "newest": -np.inf, "first": -np.inf, "all": -np.inf}
HEADS = tuple(QUERIES)

Numbers = Sequence[float] | np.ndarray

MAX_PROMPT = 512
MAX_NUMBER = 1e9


def key(position: int) -> np.ndarray:
    """Return the key of a position, counted from 1: [1 if it is even, else 0; the position], (2,)."""
    return np.array([position % 2 == 0, position], dtype=float)  # [even?, position]


def head(
    query: Sequence[float], keys: np.ndarray, values: Numbers, sink: float = -np.inf
) -> tuple[np.ndarray, np.floating]:
    """Compute one head for one token with plain exponentials, so for scores up to 709.

    Args:
        query: the token's query, (2,).
        keys, values: of the S tokens that the query sees, (S, 2) and (S,).
        sink: the score of the sink, which takes a share of the weight and adds nothing to the average.

    Returns:
        The attention weights, (S,), and the context, the weighted average of the values.
    """
    exps = np.exp(keys @ query)  # a dot product for each token
    weights = exps / (exps.sum() + np.exp(sink))  # softmax; the sink's share goes to no token
    return weights, weights @ values


def four_heads(keys: Sequence[np.ndarray] | np.ndarray, values: Numbers) -> np.ndarray:
    """Return the newest token's contexts, (H,); keys are (S, 2), values (S,), positions at most 17."""
    keys, values = np.array(keys), np.array(values)
    return np.array([head(QUERIES[name], keys, values, SINK[name])[1] for name in QUERIES])


def causal_mask(T: int) -> np.ndarray:
    """Return the causal mask, (T, T): True where a query (row) may attend to a key (column).

    A query may attend to the key of its own token and to those of earlier tokens.
    """
    return np.tril(np.ones((T, T), dtype=bool))


def lm_head(contexts: np.ndarray) -> np.ndarray:
    """Map contexts (…, H) to logits (…, V), in the order of VOCABULARY."""
    return contexts @ LM_HEAD.T


def look_up_numbers(words: Sequence[str]) -> np.ndarray:
    """Return the number of each word, (T,), from NUMBERS.

    Raises:
        ValueError: as in `check_prompt`.
    """
    return check_prompt(words)[1]


def step(words: Sequence[str]) -> np.ndarray:
    """Run all words without a cache and return the logits of the next word, (V,)."""
    return lm_head(run_pass(look_up_numbers(words))[-1])


def generate(
    step: Callable[[list[str]], np.ndarray], prompt: Sequence[str], max_new_tokens: int
) -> list[str]:
    """Generate words greedily, one at a time, until `<eos>` or `max_new_tokens` words.

    Args:
        step: takes the prompt and the words generated so far, and returns the logits of the next word, (V,).
        prompt: the words of the prompt.
        max_new_tokens: maximum number of words to generate.

    Returns:
        The new words, including `<eos>` if it was generated.

    Raises:
        ValueError: `max_new_tokens` is not a whole number over 0.
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
        positions: (T,), counted from 1.
        numbers: the number of each token, (T,).

    Returns:
        (queries, keys, values). Queries, (H, T, 2), are the same at every position. Keys, (T, 2), have
        rows [1 if the position is even, else 0; the position]. Values, (T,), are the numbers.
        All H = 4 heads share one set of keys and values, as in multi-query attention (Shazeer 2019,
        arXiv:1911.02150).
    """
    queries = np.repeat(np.array([*QUERIES.values()], dtype=float)[:, None, :], len(positions), axis=1)
    keys = np.stack([positions % 2 == 0, positions], axis=1).astype(float)
    return queries, keys, numbers


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute attention: dot products, mask, softmax with the sink score, and weighted averages.

    Args:
        q: queries of the T new tokens, (H, T, 2).
        k: keys of all S tokens, (S, 2).
        v: values of all S tokens, (S,).
        mask: (T, S), True where the query may attend to the key.

    Returns:
        Contexts, (T, H).
    """
    scores = np.where(mask, q @ k.T, -np.inf)
    extra = np.broadcast_to(np.array([*SINK.values()])[:, None, None], (*scores.shape[:2], 1))
    weights = softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    return (weights @ v).T


class KVCache:
    """A cache with the keys and values of every token processed so far, for each layer.

    Args:
        n_layers: number of layers.
        max_len: maximum number of entries in each layer.

    Attributes:
        length: number of tokens stored.
        k: the keys of each layer, a row each; the first `length` rows are of completed passes.
        v: likewise, the values of each layer.
    """

    def __init__(self, n_layers: int = 1, max_len: int = 1024) -> None:
        self.max_len = max_len
        self.length = 0
        self.k: list[np.ndarray] = [np.zeros((0, 2)) for _ in range(n_layers)]
        self.v: list[np.ndarray] = [np.zeros(0) for _ in range(n_layers)]

    def positions(self, T: int) -> np.ndarray:
        """Return the positions of the next T tokens, (T,), counted from 1.

        Raises:
            ValueError: they do not fit.
        """
        self.check_capacity(T)
        return np.arange(self.length + 1, self.length + T + 1)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Append the entries of T new tokens to one layer, and return all keys and values of that layer.

        Args:
            layer: index of the layer, from 0.
            k: new keys, (T, 2).
            v: new values, (T,).

        Returns:
            Keys, (length + T, 2), and values, (length + T,).
        """
        self.k[layer] = np.concatenate([self.k[layer][: self.length], k])
        self.v[layer] = np.concatenate([self.v[layer][: self.length], v])
        return self.k[layer], self.v[layer]

    def advance(self, T: int) -> None:
        """Add T to the length. Call this once per pass, after the last layer has appended its entries."""
        self.length += T

    def check_capacity(self, T: int) -> None:
        """Raise ValueError if T more entries do not fit."""
        if self.length + T > self.max_len:
            raise ValueError(
                f"{T} new entries after {self.length} make {self.length + T}; expected at most "
                f"{self.max_len}: make a KVCache with a larger max_len, or stop here. Nothing was written."
            )

    def mask(self, T: int) -> np.ndarray:
        """Return the causal mask of T new tokens, (T, length + T).

        It is True where a new token (row) may attend to a stored or new token (column).

        Raises:
            ValueError: the new tokens do not fit.
        """
        self.check_capacity(T)
        query = np.arange(self.length + 1, self.length + T + 1)[:, None]
        return np.arange(1, self.length + T + 1) <= query

    def truncate(self, length: int) -> None:
        """Keep only the first `length` entries of each layer.

        Raises:
            ValueError: `length` is not a whole number from 0 to the number of entries.
        """
        if not is_whole(length) or not 0 <= length <= self.length:
            raise ValueError(f"length is {length!r}; expected 0 to {self.length}, the entries stored")
        self.length = int(length)

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.k)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.length} of {self.max_len} entries, layers: {self.n_layers})"


Core = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def run_pass(
    numbers: Numbers, cache: KVCache | None = None, *, n_layers: int = 1, attention: Core = attention
) -> np.ndarray:
    """Run new tokens through every layer, with the entries of earlier tokens read from the cache.

    Args:
        numbers: the numbers of the new tokens, (T,).
        cache: a cache of `n_layers` layers, with the entries of earlier tokens, to which those of the new
            tokens are added. None means that there are no earlier tokens.
        n_layers: number of layers to run.
        attention: function from queries, keys, values and mask to contexts, (T, H).

    Returns:
        The last layer's contexts of the new tokens, (T, H).

    Raises:
        ValueError: the numbers are invalid (see `check_numbers`), or they do not fit into the cache, which
            is left unchanged.
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
    """Return the words of a prompt and their numbers, (T,), if they are valid.

    Args:
        tokens: text of each token.
        numbers: number of each token; None looks up the numbers in NUMBERS.

    Raises:
        ValueError: the prompt is a string instead of a list, is empty, or has over `MAX_PROMPT` tokens; a
            token is not a string, is empty, or has no number; `tokens` and `numbers` differ in length; or a
            number is invalid (see `check_numbers`).
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
    """Return the numbers of T tokens as a float array, (T,), if they are valid.

    Raises:
        ValueError: there are no numbers, or one is NaN, infinite, or over a billion in size.
    """
    carried = list(numbers)
    if not carried:
        raise ValueError("there are no numbers; expected one for each token, and at least one")
    for n, number in enumerate(carried, 1):
        if not is_number(number) or abs(number) > MAX_NUMBER:
            raise ValueError(
                f"number {n} is {number!r}; expected a finite number of at most a billion either way"
            )
    return np.array(carried, dtype=float)
