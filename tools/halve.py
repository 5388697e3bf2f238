"""Write the shipped model as one small file for a page: `python -m tools halve`.

`helpers/weights/model.f16.safetensors` holds the weights of model.safetensors in float16, and as metadata all
that a page needs beside them: the model's name, its config.json and its words. Rounding moves logits by up to
0.005.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save

from helpers.model import shipped
from helpers.model.load import load
from helpers.model.load.config import config_to_json
from helpers.model.load.safetensors import stored
from helpers.model.transformer import Transformer
from tools.launch import parser

FILE = "model.f16.safetensors"
PATH = shipped.FOLDER / FILE
NAME = "weather diaries"


def page_file(
    model: Transformer, vocabulary: list[str], name: str = NAME, dtype: torch.dtype = torch.float16
) -> bytes:
    """Return a model and its words as one safetensors file, its weights in another type."""
    about = {"name": name, "config": config_to_json(model.config, dtype), "vocabulary": vocabulary}
    weights = {key: tensor.to(dtype) for key, tensor in stored(model).items()}
    return save(weights, metadata={"model": json.dumps(about)})  # of several keys the order would change


def write(folder: Path = shipped.FOLDER) -> None:
    """Write it next to model.safetensors and say where it is."""
    path = folder / FILE
    path.write_bytes(page_file(load(folder), list(shipped.VOCABULARY)))
    print(f"{path}, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser(__doc__).parse_args()
    write()
