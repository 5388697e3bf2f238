"""Write the shipped model as a single safetensors file for web pages: `python -m tools halve`.

`helpers/weights/model.f16.safetensors` contains the weights of model.safetensors, rounded to float16. Its
metadata contains everything else that a page needs to run the model: the model's name, its config.json and
its vocabulary. The rounding changes logits by up to 0.005.
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
    """Return the content of a safetensors file with a model's weights in `dtype`.

    The metadata contains the name, the config and the vocabulary.
    """
    about = {"name": name, "config": config_to_json(model.config, dtype), "vocabulary": vocabulary}
    weights = {key: tensor.to(dtype) for key, tensor in tensors_to_save(model).items()}
    return save(weights, metadata={"model": json.dumps(about)})  # one key: the order of several is not fixed


def write_model_file(folder: Path = shipped.FOLDER) -> None:
    """Write FILE_NAME into `folder`, which contains model.safetensors, and print its path and size in MB."""
    path = folder / FILE_NAME
    path.write_bytes(pack_model(load(folder), list(shipped.VOCABULARY)))
    print(f"{path}, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    argument_parser(__doc__).parse_args()
    write_model_file()
