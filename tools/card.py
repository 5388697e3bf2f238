"""Time decode steps and compare them with `step_time`'s prediction: helpers/chapters/data/card_*.json.

    python -m tools card path/of/config.json           # random weights in bfloat16
    python -m tools card Llama-3.1-8B --card H100      # a dense model and a card of cost/models.py
    python -m tools card gqa --dtype float32 --gib 2   # the shipped model; GiB for the KV cache

Uses a GPU if there is one. The step is this project's own, with its launch overhead; weights and KV cache are
random. A pair (users, tokens) has no time if its KV cache does not fit in memory next to the weights. The
prediction is a lower bound, computed from the data sheet of --card or, without this option, from the speeds
that a large copy and a large product reach on this machine. Run nothing else meanwhile.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from helpers.chapters.n16 import RECORDED
from helpers.cost.layers import Full
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Hardware, Roofline
from helpers.cost.step import step_time
from helpers.model import shipped
from helpers.model.cache import StaticCache
from helpers.model.config import SIZES, ModelConfig
from helpers.model.generate import next_token_logits
from helpers.model.load.config import read_config
from helpers.model.model_classes import make_model
from helpers.model.transformer import Transformer
from helpers.timing import time_in_turns
from helpers.timing.steps import repeatable_pass
from tools import launch

USERS, TOKENS = tuple(2**n for n in range(10)), (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
DENSE = {name: m for name, m in MODELS.items() if not m.experts and {*map(type, m.layers)} == {Full}}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class UnmaskedCache(StaticCache):
    """A cache without a mask. One new token attends to all entries, and PyTorch can use its fast kernels."""

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return None, since nothing is masked."""
        return None  # type: ignore[return-value]


def config_of(name: str) -> ModelConfig:
    """Return the sizes of a model.

    Args:
        name: a variant of the shipped model, a dense model in MODELS, or the path of a config.json.
    """
    if model := DENSE.get(name):
        sizes = {size: getattr(model, size) for size in SIZES}
        return ModelConfig(**sizes, tied=model.tied, qkv_bias=model.qkv_bias)
    return shipped.VARIANTS.get(name) or read_config(name.removesuffix("config.json") or ".")


def fastest(task: Any) -> float:
    """Return the duration of the fastest of many calls, in seconds.

    A call ends when the device has finished its work.
    """
    wait = torch.cuda.synchronize if DEVICE == "cuda" else int
    return time_in_turns({"task": lambda: (task(), wait())}, turns=5)["task"].best


def measured(dtype: torch.dtype) -> Roofline:
    """Return the speeds that this machine reaches: those of a large product and of a large copy."""
    n, side = (2**30, 8192) if DEVICE == "cuda" else (2**26, 1024)
    x, a = (torch.ones(size, dtype=dtype, device=DEVICE) for size in (n // dtype.itemsize, (side, side)))
    y = torch.empty_like(x)
    return Roofline(2 * side**3 / fastest(lambda: a @ a), 2 * n / fastest(lambda: y.copy_(x)))


def step_ms(model: Transformer, users: int, tokens: int) -> float:
    """Return the milliseconds of a decode step of `users` users with `tokens` cached tokens each."""
    cache = UnmaskedCache(model.config, users, tokens + 1, dtype=model.lm_head.weight.dtype, device=DEVICE)
    for stored in (cache.k, cache.v):
        stored.normal_()
    cache.advance(tokens)
    newest = torch.zeros(users, 1, dtype=torch.int64, device=DEVICE)
    return 1000 * fastest(repeatable_pass(cache, partial(next_token_logits, model, newest, cache)))


def record(
    config: ModelConfig, dtype: torch.dtype, speeds: Hardware, capacity: float
) -> list[dict[str, Any]]:
    """Return a dict for each step: users, tokens, ms, and the predicted ms.

    Args:
        config: sizes of the model.
        dtype: of the weights and of the KV cache.
        speeds: of the card, for the prediction.
        capacity: maximum size of the KV cache, in bytes; 0 for all free GPU memory. Larger steps have ms
            None.
    """
    bits, a_token, steps = 8 * dtype.itemsize, config.cache_nbytes_per_token(dtype.itemsize), []
    torch.set_default_dtype(dtype)  # otherwise a model would need twice its bytes while it is built
    with torch.device(DEVICE):
        model = make_model(replace(config, max_seq_len=max(config.max_seq_len, TOKENS[-1] + 1)))
    torch.set_default_dtype(torch.float32)
    capacity = capacity or torch.cuda.mem_get_info()[0]
    for users, tokens in product(USERS, TOKENS):
        ms = None
        if users * (tokens + 1) * a_token <= capacity:
            with suppress(torch.cuda.OutOfMemoryError):  # for a step's temporary tensors
                ms = step_ms(model, users, tokens)
        bound = step_time(config, speeds, tokens, users, weight_bits=bits, kv_bits=bits).total
        steps.append({"users": users, "tokens": tokens, "ms": ms, "predicted": 1000 * bound})
    return steps


def main() -> None:
    """Time the steps and write the file."""
    parser = launch.parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--card", choices=CARDS)
    parser.add_argument("--gib", type=float, default=2 * (DEVICE == "cpu"), help="0: all free GPU memory")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    speeds = CARDS[options.card] if options.card else measured(dtype)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    model = Path(options.model.removesuffix("config.json")).name
    result = {"model": model, "device": device, "dtype": options.dtype, "torch": torch.__version__}
    result |= {"date": str(date.today()), "source": "tools/card.py: this project's own step"}
    result["speeds"] = str(speeds)
    result["steps"] = record(config_of(options.model), dtype, speeds, 2**30 * options.gib)
    name = re.sub(r"\W+", "-", f"card_{device} {model} {options.dtype}")
    path = RECORDED / f"{name}.json"
    text = json.dumps(json.loads(json.dumps(result), parse_float=lambda x: float(f"{float(x):.4g}")))
    path.write_text(text.replace(', {"users"', ',\n  {"users"') + "\n", encoding="utf-8")
    print(path)
