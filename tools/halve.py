"""Write the shipped model as one small file for a page: `python -m tools halve`.

`helpers/weights/model.f16.safetensors` has the weights of model.safetensors in float16, and in its metadata
everything else that a page needs: the model's name, its config.json and its vocabulary. The rounding changes
logits by up to 0.005.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save

from helpers.model import shipped
from helpers.model.load import load
from helpers.model.load.config import config_to_json
from helpers.model.load.safetensors import tensors_to_save
from helpers.model.transformer import Transformer
from tools.launch import argument_parser

FILE_NAME = "model.f16.safetensors"
PATH = shipped.FOLDER / FILE_NAME
MODEL_NAME = "weather diaries"


def pack_model(
    model: Transformer, vocabulary: list[str], name: str = MODEL_NAME, dtype: torch.dtype = torch.float16
) -> bytes:
    """Return the bytes of one safetensors file with a model, in `dtype`, and its vocabulary."""
    about = {"name": name, "config": config_to_json(model.config, dtype), "vocabulary": vocabulary}
    weights = {key: tensor.to(dtype) for key, tensor in tensors_to_save(model).items()}
    return save(weights, metadata={"model": json.dumps(about)})  # one key: the order of several is not fixed


def write_model_file(folder: Path = shipped.FOLDER) -> None:
    """Write the shipped model as a file next to model.safetensors, and print its path."""
    path = folder / FILE_NAME
    path.write_bytes(pack_model(load(folder), list(shipped.VOCABULARY)))
    print(f"{path}, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    argument_parser(__doc__).parse_args()
    write_model_file()
