"""Time decode steps next to what `step_time` predicts: helpers/chapters/data/card_*.json.

    python -m tools card path/of/config.json           # random weights in bfloat16
    python -m tools card Llama-3.1-8B --card H100      # a dense model and a card of cost/models.py
    python -m tools card gqa --dtype float32 --gib 2   # sizes of the shipped model; room for rows

On a GPU, if there is one. The step is this project's own, launches and all; weights and rows are random. A
pair whose rows do not fit beside the weights has no time. The prediction is the lower bound by the data sheet
of --card, or by what a copy and a product reach here. Let nothing else run.
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
from helpers.cost.roofline import Limits, Roof
from helpers.cost.step import step_time
from helpers.model import shipped
from helpers.model.cache import StaticCache
from helpers.model.config import SIZES, ModelConfig
from helpers.model.generate import run
from helpers.model.kinds import model_of
from helpers.model.load.config import read_config
from helpers.model.transformer import Transformer
from helpers.timing import in_turns
from helpers.timing.steps import repeatable
from tools import launch

USERS, TOKENS = tuple(2**n for n in range(10)), (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
DENSE = {name: m for name, m in MODELS.items() if not m.experts and {*map(type, m.layers)} == {Full}}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Rows(StaticCache):
    """One new token sees every row, and without a mask PyTorch takes its quick kernels."""

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """None: nothing is hidden."""
        return None  # type: ignore[return-value]


def config_of(name: str) -> ModelConfig:
    """Return the sizes of a variant of the shipped model, of a dense published one, or of a config.json."""
    if found := DENSE.get(name):
        sizes = {size: getattr(found, size) for size in SIZES}
        return ModelConfig(**sizes, tied=found.tied, qkv_bias=found.qkv_bias)
    return shipped.VARIANTS.get(name) or read_config(name.removesuffix("config.json") or ".")


def fastest(task: Any) -> float:
    """Return the seconds of the fastest of many calls, until the device has done what they launched."""
    wait = torch.cuda.synchronize if DEVICE == "cuda" else int
    return in_turns({"task": lambda: (task(), wait())}, turns=5)["task"].best


def measured(dtype: torch.dtype) -> Roof:
    """Return what a large product computes in a second, and what a large copy reads and writes."""
    n, side = (2**30, 8192) if DEVICE == "cuda" else (2**26, 1024)
    x, a = (torch.ones(size, dtype=dtype, device=DEVICE) for size in (n // dtype.itemsize, (side, side)))
    y = torch.empty_like(x)
    return Roof(2 * side**3 / fastest(lambda: a @ a), 2 * n / fastest(lambda: y.copy_(x)))


def step_ms(model: Transformer, users: int, tokens: int) -> float:
    """Return the milliseconds of a decode step of so many users, behind so many tokens each."""
    cache = Rows(model.config, users, tokens + 1, dtype=model.lm_head.weight.dtype, device=DEVICE)
    for rows in (cache.k, cache.v):
        rows.normal_()
    cache.advance(tokens)
    newest = torch.zeros(users, 1, dtype=torch.int64, device=DEVICE)
    return 1000 * fastest(repeatable(cache, partial(run, model, newest, cache)))


def record(config: ModelConfig, dtype: torch.dtype, speeds: Limits, room: float) -> list[dict[str, Any]]:
    """Return each pair with its ms, None where its rows take more bytes than `room`, and the prediction."""
    bits, a_token, steps = 8 * dtype.itemsize, config.cache_nbytes_per_token(dtype.itemsize), []
    torch.set_default_dtype(dtype)  # or a model would need twice its bytes while it is made
    with torch.device(DEVICE):
        model = model_of(replace(config, max_seq_len=max(config.max_seq_len, TOKENS[-1] + 1)))
    torch.set_default_dtype(torch.float32)
    room = room or torch.cuda.mem_get_info()[0]
    for users, tokens in product(USERS, TOKENS):
        ms = None
        if users * (tokens + 1) * a_token <= room:
            with suppress(torch.cuda.OutOfMemoryError):  # of what a step makes on the way
                ms = step_ms(model, users, tokens)
        least = step_time(config, speeds, tokens, users, weight_bits=bits, kv_bits=bits).total
        steps.append({"users": users, "tokens": tokens, "ms": ms, "predicted": 1000 * least})
    return steps


def main() -> None:
    """Record, and write the file."""
    parser = launch.parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--card", choices=CARDS)
    parser.add_argument("--gib", type=float, default=2 * (DEVICE == "cpu"), help="0: all that a GPU has left")
    asked = parser.parse_args()
    dtype = getattr(torch, asked.dtype)
    speeds = CARDS[asked.card] if asked.card else measured(dtype)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    model = Path(asked.model.removesuffix("config.json")).name
    found = {"model": model, "device": device, "dtype": asked.dtype, "torch": torch.__version__}
    found |= {"date": str(date.today()), "source": "tools/card.py: this project's own step"}
    found["speeds"] = str(speeds)
    found["steps"] = record(config_of(asked.model), dtype, speeds, 2**30 * asked.gib)
    name = re.sub(r"\W+", "-", f"card_{device} {model} {asked.dtype}")
    path = RECORDED / f"{name}.json"
    text = json.dumps(json.loads(json.dumps(found), parse_float=lambda x: float(f"{float(x):.4g}")))
    path.write_text(text.replace(', {"users"', ',\n  {"users"') + "\n", encoding="utf-8")
    print(path)
