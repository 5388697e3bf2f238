"""Read a model's weights from safetensors files, or write them to one such file. Pickles are never read."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as as_bytes
from torch import Tensor

from helpers.model.load.config import CONFIG_FILE, config_to_json
from helpers.model.load.files import CheckpointError, checkpoint_errors, read_json
from helpers.model.load.weights import EMBEDDING, LM_HEAD, convert_tensor
from helpers.model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PREFIX = "model."  # prefix of all names in a file, except that of the LM head


def read_weights(folder: Path, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, by their names in the model.

    Args:
        folder: folder of the checkpoint.
        dtype: as in `load`.

    Raises:
        CheckpointError: a weight file is missing or damaged, or a tensor is unsuitable; see `convert_tensor`.
    """
    found = [name for name in (WEIGHTS, INDEX) if (folder / name).exists()]
    if len(found) != 1:
        raise CheckpointError(
            f"{folder} holds {len(found)} of {WEIGHTS} and {INDEX}; expected one of the two: a pickle "
            "(.bin, .pt, .pth) is not read, as it may run code"
        )
    if found == [INDEX]:
        with checkpoint_errors(folder / INDEX):
            found = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    weights: dict[str, Tensor] = {}
    for file in found:
        path = folder / file
        with (
            checkpoint_errors(path, " is missing, damaged or cut off"),
            safe_open(path, framework="pt") as tensors,
        ):
            for name in tensors.keys():  # noqa: SIM118 - it is not a dict
                if not name.endswith("rotary_emb.inv_freq"):  # in old files; it follows from config.json
                    weights[name.removeprefix(PREFIX)] = convert_tensor(name, tensors.get_tensor(name), dtype)
    return weights


def save(model: Transformer, folder: str | Path) -> None:
    """Write a model to a folder, as config.json and model.safetensors.

    The library `transformers` can load these files, with two exceptions: a Llama whose hidden_size is not a
    multiple of n_heads, and a model with layers that keep a state.

    Raises:
        CheckpointError: the model is tied, but its LM head differs from its embedding. Nothing is written.
    """
    folder, weights = Path(folder), tensors_to_save(model)
    config = config_to_json(model.config, model.embed_tokens.weight.dtype)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(as_bytes(weights, metadata={"format": "pt"}))
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def tensors_to_save(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors that `save` writes, by their names in model.safetensors.

    Raises:
        CheckpointError: as in `save`.
    """
    state = model.state_dict()
    if model.config.tied and not torch.equal(state.pop(LM_HEAD), state[EMBEDDING]):
        raise CheckpointError(
            f"{LM_HEAD} is not {EMBEDDING}, though the model is tied; call model.tie_weights() to drop it "
            "or make the model with tied=False"
        )
    return {(name if name == LM_HEAD else PREFIX + name): x.cpu().contiguous() for name, x in state.items()}
