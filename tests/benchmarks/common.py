"""What the benchmarks share: models, `transformers` with the same weights, options, tables."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from helpers.model import load as checkpoints
from helpers.model import shipped
from helpers.model.sizes import CONFIGS
from helpers.model.transformer import Transformer

ROOT = Path(__file__).resolve().parents[2]

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def model_of(name: str) -> Transformer:
    """A model of this size: trained weights in the smallest, else random ones from a seed."""
    torch.manual_seed(0)
    model = shipped.load_shipped()[0] if name == "shipped" else Transformer(CONFIGS[name])
    return model.eval().requires_grad_(False)


def theirs_of(model: Transformer, **settings: Any) -> Any:
    """The same weights in `transformers`, in float32; it does not stop before it is told to."""
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(model, folder)
        theirs = load(folder, dtype=torch.float32, **settings).eval()
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0
    return theirs


def options(doc: str | None, threads: int = 1, **more: int | dict[str, Any]) -> argparse.Namespace:
    """Read the command line: --threads, which PyTorch gets, and more options, numbers by their default."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=threads, help="of PyTorch")
    for name, settings in more.items():
        parser.add_argument(
            f"--{name}", **(settings if isinstance(settings, dict) else {"type": int, "default": settings})
        )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {conditions()}")
    return given


def conditions() -> str:
    """PyTorch's threads, and how busy the machine was in the last minute, in processors."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return f"threads: {torch.get_num_threads()}, load {load}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, its first column to the left and the others to the right."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}; {conditions()}")
    for first, *rest in cells:
        print("  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]), flush=True)
