"""Checkers of notebook 06, a whole transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.check.cases import Case, Mistakes, compare, with_reason
from helpers.check.part2.shared import call, drawn, read_bools, read_number, read_tensor, say
from helpers.check.result import NotRightError, exercise, show
from helpers.model.attention import Attention, rope_frequencies, rotate, rotation
from helpers.model.cache import GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.transformer import RMSNorm, SwiGLU

MOVES_TODO = "let who_moves change one token at a time, and return bools (T, T)."
SIZES = ModelConfig(
    n_layers=1,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    hidden_size=8,
    intermediate_size=11,
    vocab_size=7,
    max_seq_len=16,
)
Operation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Moved:
    """An operation on x (1, T, C) that a reader's function is run on, with its name for the labels."""

    name: str
    run: Operation

    def __call__(self, x: Any) -> Tensor:
        if not isinstance(x, Tensor) or x.ndim != 3 or len(x) != 1 or x.shape[2] != SIZES.hidden_size:
            expected = f"a tensor (1, T, C) with C = {SIZES.hidden_size}"
            raise NotRightError(f"f, {self.name}, got {say(x)}; expected {expected}, like x.")
        return self.run(x.float())


def _rotate(x: Tensor) -> Tensor:
    """Turn each token's pairs by its position."""
    turns = rope_frequencies(ModelConfig(**{**vars(SIZES), "head_dim": x.shape[2]}))
    return rotate(x[:, None], *rotation(torch.arange(1, 1 + x.shape[1]), turns, x.dtype))[:, 0]


def _with_drawn_weights(module: nn.Module) -> nn.Module:
    """Give a module weights that are the same each time, and that ask for no gradients."""
    for n, weight in enumerate(module.requires_grad_(False).parameters()):
        weight.data = drawn(n, *weight.shape)
    return module


def _attention() -> Operation:
    """Return causal attention."""
    layer = _with_drawn_weights(Attention(SIZES, 0))

    def run(x: Tensor) -> Tensor:
        cache, T = GrowingCache(SIZES), x.shape[1]
        return layer(x, rotation(cache.positions(T), rope_frequencies(SIZES), x.dtype), cache)

    return run


def _norm_over_time(x: Tensor) -> Tensor:
    """RMSNorm with the mean taken over tokens: the wrong axis."""
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + SIZES.norm_eps)


def _half_shift(x: Tensor) -> Tensor:
    """Move the first half of each token's numbers to the next token."""
    half = x.shape[2] // 2
    return torch.cat([F.pad(x[:, :-1, :half], (0, 0, 1, 0)), x[:, :, half:]], dim=2)


IN_TURNS = "sums so far, their signs in turns"


def _sums_in_turns(x: Tensor) -> Tensor:
    """Sum the tokens' first numbers up to each token, every other sum negated: one number a row."""
    signs = torch.tensor([1.0, -1.0]).repeat(x.shape[1])[: x.shape[1]].to(x.dtype)
    return (x[:, :, :1].cumsum(dim=1) * signs[:, None]).expand_as(x)


def _operations() -> list[Moved]:
    C = SIZES.hidden_size
    weight = _in_64ths(drawn(9, C, C))
    weight[:, -1] = -weight[:, :-1].sum(dim=1)  # the numbers of a row of x @ weight add up to 0
    with torch.random.fork_rng(devices=[]):  # modules draw weights, which are replaced
        attention, mlp = _attention(), _with_drawn_weights(SwiGLU(SIZES))
    return [
        Moved("causal attention", attention),
        Moved(IN_TURNS, _sums_in_turns),
        Moved("a linear layer", lambda x: x @ weight),
        Moved("RMSNorm", RMSNorm(C, 1e-30).float().requires_grad_(False)),  # eps too small to show
        Moved("each token less its own mean", lambda x: x - x.mean(dim=2, keepdim=True)),
        Moved("SwiGLU", mlp),
        Moved("the rotation by position", _rotate),
        Moved("a norm over the wrong axis, the tokens", _norm_over_time),
        Moved("the mean over all tokens", lambda x: x.mean(dim=1, keepdim=True).expand_as(x)),
        Moved("half of each token handed to the next", _half_shift),
    ]


Change = Callable[[Tensor, int], Tensor]  # from x and j to the x that is tried


def _filled(x: Tensor, j: int) -> Tensor:
    """Put other numbers into token j."""
    changed = x.clone()
    changed[:, j] = drawn(100 + j, x.shape[2])
    return changed


def _channel(x: Tensor, j: int) -> Tensor:
    changed = x.clone()
    changed[:, :, min(j, x.shape[2] - 1)] += 1
    return changed


def _so_far(x: Tensor, j: int) -> Tensor:
    for i in range(j + 1):
        x = _filled(x, i)
    return x


def _by_token(change: Callable[[Tensor], Tensor]) -> Change:
    """Return a change of token j alone."""

    def changed(x: Tensor, j: int) -> Tensor:
        x = x.clone()
        x[:, j] = change(x[:, j])
        return x

    return changed


def _who(
    change: Change = _filled, size: Operation = lambda rows: rows
) -> Callable[[Operation, Tensor], Tensor]:
    """Return a `who_moves` that tries this change, and compares this of the rows."""

    def who(f: Operation, x: Tensor) -> Tensor:
        before = size(f(x))
        columns = [(size(f(change(x, j))) - before).abs().amax(dim=(0, 2)) > 1e-5 for j in range(x.shape[1])]
        return torch.stack(columns, dim=1)

    return who


_who_right = _who()


def _everywhere(f: Operation, x: Tensor) -> Tensor:
    """Call a row changed if all of its numbers are."""
    before = f(x)
    columns = [((f(_filled(x, j)) - before).abs() > 1e-9).all(dim=2)[0] for j in range(x.shape[1])]
    return torch.stack(columns, dim=1)


MOVES_MISTAKES: Mistakes = {
    "transposed: row i is what changed, column j the token whose numbers were changed.": [
        lambda f, x: _who_right(f, x).T
    ],
    "upside down: True where the row changes.": [
        lambda f, x: ~_who_right(f, x),
        lambda f, x: ~_who_right(f, x).T,
        lambda f, x: ~_everywhere(f, x),
    ],
    "only one row is compared; compare every row of f(x) with what it was.": [
        lambda f, x: _who_right(f, x)[-1].expand(x.shape[1], -1),
        lambda f, x: _who_right(f, x)[0].expand(x.shape[1], -1),
        lambda f, x: torch.eye(x.shape[1], dtype=torch.bool),
    ],
    "a number of every token is changed (x[:, :, j]); token j is x[:, j].": [
        _who(_channel),
    ],
    "the changes pile up: for each j begin with a fresh copy of x.": [_who(_so_far)],
    "the sums of rows were compared; compare number by number.": [
        _who(size=lambda rows: rows.sum(dim=2, keepdim=True)),
    ],
    "one number alone is changed or compared; change and compare all of them.": [
        _who(size=lambda rows: rows[:, :, :1]),
        _who(size=lambda rows: rows[:, :, -1:]),
    ],
    "put random numbers into the token: some operations hide a change that adds the same to every number.": [
        _who(_by_token(lambda row: row + 1))
    ],
    "a norm hides lengths: put random numbers into the token, and compare number by number.": [
        _who(_by_token(lambda row: 2 * row))
    ],
    "a row counts as changed if any of its numbers is, not only if all are.": [_everywhere],
    "no change is seen: it is too small, or f was not run on the changed copy.": [
        lambda f, x: torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
    ],
    "True everywhere: compare each row of f(changed) with the same row of f(x), one bool a row.": [
        lambda f, x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
    ],
    "the lower triangle, whatever f does: that is causal attention; run f and compare.": [
        lambda f, x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    ],
}


def _in_64ths(x: Tensor) -> Tensor:
    """Round to 64ths, so that sums and means of x are exact: rounding makes no change where there is none."""
    return (64 * x).round() / 64


def _moves_cases() -> list[Case]:
    lengths = [5, 5, 3, 4, 6, 5, 3, 4, 6, 5]
    return [
        Case(
            f"who_moves on {operation.name}, T = {T},",
            (operation, _in_64ths(drawn(50 + n, 1, T, SIZES.hidden_size))),
        )
        for n, operation in enumerate(_operations())
        for T in [lengths[n]]
    ]


def _moves_once(function: Any, case: Case) -> np.ndarray:
    """Run the reader's function; torch's generator is as before, since it may draw from it."""
    T = case.args[1].shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        value = call(function, case, MOVES_TODO, gradients=True)
    return read_bools(value, case.label, (T, T))


SIGNED = "a change may also make numbers smaller: compare with !=, or take abs() first."


def _one_sign(table: np.ndarray) -> bool:
    """Whether a table of `_sums_in_turns` holds every other row only: those that grew, or that shrank."""
    T = len(table)
    return all(
        np.flatnonzero(table[:, j]).tolist() in ([*range(j, T, 2)], [*range(j + 1, T, 2)]) for j in range(T)
    )


def _tell_moves(got: np.ndarray, expected: np.ndarray) -> str:
    """Name the first cell that is wrong."""
    j, i = np.argwhere((got != expected).T)[0]
    begin = f"says at [{i}, {j}] {bool(got[i, j])}; expected {bool(expected[i, j])}, as changing token {j}"
    return f"{begin} {'changes' if expected[i, j] else 'does not change'} row {i}"


@exercise
def who_moves(answer: Any) -> str:
    """06: `who_moves(f, x)` gives bools (T, T): does changing token j of x (1, T, C) change row i of f(x)?"""
    tables: dict[str, np.ndarray] = {}

    def attempt(function: Any, case: Case) -> np.ndarray:
        return tables.setdefault(case.args[0].name, _moves_once(function, case))

    try:
        expected = compare(
            answer,
            _moves_cases(),
            attempt=attempt,
            right=lambda f, x: _who_right(f, x).numpy(),
            mistakes=MOVES_MISTAKES,
            tell=_tell_moves,
        )
    except NotRightError as stop:
        signed = not stop.reason and IN_TURNS in tables and _one_sign(tables[IN_TURNS])
        raise NotRightError(stop.message, SIGNED if signed else stop.reason) from None
    diagonal = sum(np.array_equal(table, np.eye(len(table))) for table in expected)
    return (
        f"{diagonal} of {len(expected)} operations are a diagonal, attention is the lower triangle, "
        "and the norm over the wrong axis mixes every token with every other."
    )


SHIFT_TODO = "let shift_targets return inputs and targets, (B, T) each."
NOT_SHIFTED = "not shifted: the model is asked for the token that it is given."
SHIFT_MISTAKES: Mistakes = {
    NOT_SHIFTED: [
        lambda tokens: (tokens[:, :-1], tokens[:, :-1]),
        lambda tokens: (tokens[:, 1:], tokens[:, 1:]),
    ],
    "swapped: inputs come first, and a target comes after its input.": [
        lambda tokens: (tokens[:, 1:], tokens[:, :-1])
    ],
    "every target is the first token: the last input has to be followed by the last token.": [
        lambda tokens: (tokens[:, :-1], tokens[:, :1].expand(-1, tokens.shape[1] - 1))
    ],
    "rolled: the last target is the first token of the sequence, which does not come after it.": [
        lambda tokens: (tokens[:, 1:], tokens.roll(-1, 1)[:, 1:]),
    ],
    "the wrong direction: a target is the token after its input, not before it.": [
        lambda tokens: (tokens[:, :-1], tokens.roll(1, 1)[:, :-1])
    ],
}


def _shift_right(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return tokens[:, :-1], tokens[:, 1:]


def _shift_cases() -> list[Case]:
    sizes = [(2, 6), (3, 4), (1, 9), (4, 2)]
    return [
        Case(
            f"shift_targets on ids {size}",
            (torch.randperm(40, generator=torch.Generator().manual_seed(n))[: size[0] * size[1]].view(size),),
        )
        for n, size in enumerate(sizes)
    ]


def _pair(parts: tuple[Tensor, Tensor]) -> Tensor:
    return torch.stack(parts)


def _shift_once(function: Any, case: Case) -> Tensor:
    """Return the reader's inputs and targets, (2, B, T)."""
    (tokens,) = case.args
    B, length = tokens.shape
    value = call(function, case, SHIFT_TODO)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise NotRightError(f"{case.label} gives {say(value)}; expected inputs and targets.")
    _check_cut(case.label, tokens, value)
    parts = []
    for name, part in zip(("inputs", "targets"), value, strict=True):
        parts.append(read_tensor(part, case.label, (B, length - 1), what=name))
        if part.dtype != tokens.dtype:
            kinds = (str(kind).removeprefix("torch.") for kind in (part.dtype, tokens.dtype))
            message = "{} gives {} of {}; expected {}.".format(case.label, name, *kinds)
            raise NotRightError(message, "ids stay whole numbers, as they came: they pick rows and words.")
    return _pair((parts[0], parts[1]))


def _check_cut(label: str, tokens: Tensor, value: Any) -> None:
    """Raise, with the likely reason, if the parts are cut to a wrong length."""
    B, length = tokens.shape
    if not all(isinstance(part, Tensor) for part in value):
        return
    inputs, targets = (tuple(part.shape) for part in value)
    reasons = {
        ((B - 1, length), (B - 1, length)): "the wrong axis: this shifts sequences of the batch, not tokens.",
        ((B, length - 2), (B, length - 2)): "shifted twice: the targets are two tokens behind the inputs.",
        ((B, length), (B, length)): "nothing is cut: the last token has no target, so it is no input.",
        ((B, length), (B, length - 1)): "the last token has no target, so it is no input.",
        ((B, length - 1), (B, length - 2)): "shifted twice: the first target is the second token.",
        ((B, length - 1), (B, length)): "the first token comes after nothing, so it is no target.",
    }
    reason = reasons.get((inputs, targets), "")
    if reason:
        expected = (B, length - 1)
        raise NotRightError(f"{label} gives {inputs} and {targets}; expected {expected} twice.", reason)


def _tell_shift(got: Tensor, expected: Tensor) -> str:
    """Show the first sequence's inputs and targets, and what a model that repeats its input would lose."""
    b = int((got != expected).any(dim=(0, 2)).nonzero()[0])
    inputs, targets = ([int(token) for token in part[b]] for part in got)
    right = ", ".join(str(int(token)) for token in expected[1, b])
    return f"pairs {show(inputs)} with {show(targets)}; expected {show(expected[0, b].tolist())} with {right}"


def _copier_loss(parts: Tensor) -> float:
    """Return the loss of a model that gives its own input the logit 9 and all others 0."""
    logits = 9.0 * F.one_hot(parts[0].long(), 40)
    return float(F.cross_entropy(logits.flatten(0, 1), parts[1].long().flatten()))


def _explain_copier(stop: NotRightError) -> NotRightError:
    """Add what the missing shift does to the loss, which would look like a success."""
    if stop.reason != NOT_SHIFTED:
        return stop
    (tokens,) = _shift_cases()[0].args
    loss = _copier_loss(_pair((tokens[:, :-1], tokens[:, :-1])))
    return NotRightError(stop.message, f"{NOT_SHIFTED} One that only repeats gets the loss {loss:.2f}.")


@exercise
def shift_targets(answer: Any) -> str:
    """06: `shift_targets(tokens)` cuts ids (B, T + 1) into inputs and targets, (B, T) each."""
    try:
        expected = compare(
            answer,
            _shift_cases(),
            attempt=_shift_once,
            right=lambda tokens: _pair(_shift_right(tokens)),
            mistakes={
                reason: [lambda tokens, wrong=wrong: _pair(wrong(tokens)) for wrong in functions]
                for reason, functions in SHIFT_MISTAKES.items()
            },
            tell=_tell_shift,
        )
    except NotRightError as stop:
        raise _explain_copier(stop) from None
    loss = _copier_loss(expected[0])
    return f"(2, 6) gives (2, 5) twice; a model that only repeats its input gets the loss {loss:.2f}, not 0."


COUNT_TODO = "let count_parameters return how many numbers a model of this config learns."
COUNTED = {
    "SmolLM2-135M": ModelConfig(
        n_layers=30,
        n_heads=9,
        n_kv_heads=3,
        head_dim=64,
        hidden_size=576,
        intermediate_size=1536,
        vocab_size=49152,
        max_seq_len=8192,
        tied=True,
    ),
    "Llama-3.1-8B": ModelConfig(
        n_layers=32,
        n_heads=32,
        n_kv_heads=8,
        head_dim=128,
        hidden_size=4096,
        intermediate_size=14336,
        vocab_size=128256,
        max_seq_len=131072,
    ),
    "a small model with H · D over C": ModelConfig(
        n_layers=2,
        n_heads=6,
        n_kv_heads=3,
        head_dim=8,
        hidden_size=20,
        intermediate_size=28,
        vocab_size=11,
        max_seq_len=16,
    ),
    "a small tied model with one KV head": ModelConfig(
        n_layers=3,
        n_heads=4,
        n_kv_heads=1,
        head_dim=6,
        hidden_size=16,
        intermediate_size=40,
        vocab_size=13,
        max_seq_len=16,
        tied=True,
    ),
}


def _counted(**changes: Callable[[ModelConfig], int]) -> Callable[[ModelConfig], int]:
    """Return a count in which these pieces are other ones."""

    def count(config: ModelConfig) -> int:
        C, D, L = config.hidden_size, config.head_dim, config.n_layers
        pieces = {
            "words": (1 if config.tied else 2) * config.vocab_size * C,
            "q": C * config.n_heads * D,
            "k": C * config.n_kv_heads * D,
            "v": C * config.n_kv_heads * D,
            "o": C * config.n_heads * D,
            "mlp": 3 * C * config.intermediate_size,
            "norms": 2 * C,
            "last": C,
            "layers": L,
        }
        pieces |= {name: change(config) for name, change in changes.items()}
        block = sum(pieces[name] for name in ("q", "k", "v", "o", "mlp", "norms"))
        return pieces["words"] + pieces["layers"] * block + pieces["last"]

    return count


def _none(config: ModelConfig) -> int:
    return 0


def _square(config: ModelConfig) -> int:
    return config.hidden_size**2


def _biases(config: ModelConfig) -> int:
    """Count a bias for each number of Q, K and V."""
    return (config.n_heads + 2 * config.n_kv_heads) * config.head_dim


def _wide(config: ModelConfig) -> int:
    return config.hidden_size * config.n_heads * config.head_dim


COUNT_MISTAKES: Mistakes = {
    "query heads were counted for K and V; they have n_kv_heads.": [
        _counted(k=_wide, v=_wide),
        _counted(k=_square, v=_square, q=_square, o=_square),
    ],
    "K or V is missing: both have a matrix.": [_counted(k=_none)],
    "q_proj or o_proj is missing: one goes from C to H · D, the other back.": [_counted(o=_none)],
    "the norms were forgotten: C numbers for each, two in a layer and one at the end.": [
        _counted(norms=_none, last=_none)
    ],
    "the norm at the end was forgotten.": [_counted(last=_none)],
    "the two norms of each layer were forgotten.": [_counted(norms=_none)],
    "each layer has two norms.": [_counted(norms=lambda config: config.hidden_size)],
    "a tied matrix was counted twice: embedding and readout are the same numbers.": [
        _counted(words=lambda config: 2 * config.vocab_size * config.hidden_size)
    ],
    "untied, the readout has a matrix of its own.": [
        _counted(words=lambda config: config.vocab_size * config.hidden_size)
    ],
    "embedding and readout were forgotten.": [_counted(words=_none)],
    "tied and untied are mixed up: tied is one matrix, untied two.": [
        _counted(words=lambda config: (2 if config.tied else 1) * config.vocab_size * config.hidden_size)
    ],
    "the MLP has three matrices: gate, up and down.": [
        _counted(mlp=lambda config: 2 * config.hidden_size * config.intermediate_size)
    ],
    "the MLP was forgotten.": [_counted(mlp=_none)],
    "the norm at the end is one; it is not in every layer.": [
        _counted(norms=lambda config: 3 * config.hidden_size, last=_none)
    ],
    "the two norms are in every layer: 2 C times n_layers.": [
        _counted(norms=_none, last=lambda config: 3 * config.hidden_size)
    ],
    "the output projection goes back from the H · D of all query heads.": [
        _counted(o=lambda config: config.hidden_size * config.n_kv_heads * config.head_dim)
    ],
    "no biases here: the matrices alone.": [
        _counted(norms=lambda config: 2 * config.hidden_size + _biases(config))
    ],
    "the MLP's width is intermediate_size; it need not be 4 C.": [
        _counted(mlp=lambda config: 12 * config.hidden_size**2)
    ],
    "one layer only; there are n_layers.": [_counted(layers=lambda config: 1)],
    "H · D need not be C: Q and the output projection are C × (H · D).": [_counted(q=_square, o=_square)],
    "rotary positions learn nothing; no numbers for them.": [
        _counted(last=lambda config: config.hidden_size + config.max_seq_len * config.hidden_size)
    ],
}
COUNT_ERRORS = {
    "'ModelConfig' object has no attribute": "the config has the names of this notebook, such as n_kv_heads."
}


def _count_once(function: Any, case: Case) -> float:
    try:
        return read_number(call(function, case, COUNT_TODO), case.label)
    except NotRightError as stop:
        raise with_reason(stop, COUNT_ERRORS) from None


def _tell_count(got: float, expected: float) -> str:
    if not np.isfinite(got):
        return f"gives {show(got)}; expected {expected:,.0f}"
    side = "too many" if got > expected else "too few"
    return f"gives {got:,.0f}; expected {expected:,.0f}: {abs(got - expected):,.0f} {side}"


@exercise
def count_parameters(answer: Any) -> str:
    """06: `count_parameters(config)` counts the numbers that a model of this `ModelConfig` learns."""
    expected = compare(
        answer,
        [Case(f"count_parameters for {name}", (config,)) for name, config in COUNTED.items()],
        attempt=_count_once,
        right=lambda config: config.n_parameters,
        mistakes=COUNT_MISTAKES,
        tell=_tell_count,
    )
    first, second, *_ = COUNTED
    return f"{expected[0]:,} in {first}, {expected[1]:,} in {second}."
