"""Functions that the benchmarks share: models, `transformers` models, command-line options and tables."""

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
    """Return the shipped model, or a model from CONFIGS with random weights, always from the same seed."""
    torch.manual_seed(0)
    model = shipped.load_shipped()[0] if name == "shipped" else Transformer(CONFIGS[name])
    return model.eval().requires_grad_(False)


def theirs_of(model: Transformer, **settings: Any) -> Any:
    """Return a `transformers` model with the same weights, in float32.

    It has no end-of-sequence token, so its replies always have the requested length.
    """
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(model, folder)
        theirs = load(folder, dtype=torch.float32, **settings).eval()
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0
    return theirs


def options(doc: str | None, threads: int = 1, **more: int | dict[str, Any]) -> argparse.Namespace:
    """Parse the command line, set PyTorch's number of threads, and print the conditions.

    Args:
        doc: the benchmark's docstring; its first line is the description.
        threads: the default of the option --threads.
        more: further options by name, each with its integer default or with arguments for `add_argument`.
    """
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
    """Return a text with PyTorch's number of threads and the machine's load average over the last minute."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return f"threads: {torch.get_num_threads()}, load {load}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. The first column is aligned to the left, and the other columns to the right."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}; {conditions()}")
    for first, *rest in cells:
        print("  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]), flush=True)
