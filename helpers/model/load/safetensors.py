"""Weights in safetensors files, one or several with an index, read and written; never a pickle."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as as_bytes
from torch import Tensor

from helpers.model.load.config import CONFIG_FILE, GENERATION_FILE, config_to_json
from helpers.model.load.files import CheckpointError, read_json, reading
from helpers.model.load.weights import EMBEDDING, LM_HEAD, converted
from helpers.model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PREFIX = "model."  # before every name in a file but the LM head's


def read(folder: Path, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Read the tensors of a folder, by the model's names for them; arguments and errors as in `load`."""
    found = [name for name in (WEIGHTS, INDEX) if (folder / name).exists()]
    if len(found) != 1:
        raise CheckpointError(
            f"{folder} holds {len(found)} of {WEIGHTS} and {INDEX}; expected one of the two: a pickle "
            "(.bin, .pt, .pth) is not read, as it may run code"
        )
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(f"{folder} holds an adapter (adapter_config.json); expected a whole model")
    if found == [WEIGHTS]:
        return read_files(folder, found, dtype)
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{INDEX} has no weight_map; expected the file of each tensor")
    for tensor, file in places.items():
        if not re.fullmatch(r"\w[\w.-]*\.safetensors", str(file)):
            raise CheckpointError(
                f"{INDEX} puts {tensor} into {file!r}; expected a .safetensors file in the same folder"
            )
    return read_files(folder, sorted(set(places.values())), dtype)


def read_files(folder: Path, files: list[str], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Read every tensor of these files, wherever an index says that it is."""
    weights: dict[str, Tensor] = {}
    for file in files:
        path = folder / file
        with reading(path, " is missing, damaged or cut off"), safe_open(path, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no dict
                ours = name.removeprefix(PREFIX)
                if ours in weights:
                    raise CheckpointError(f"the tensor {name} stands twice; expected it once")
                if not name.endswith("rotary_emb.inv_freq"):  # in old files; it follows from config.json
                    weights[ours] = converted(name, opened.get_tensor(name), dtype)
    return weights


def save(model: Transformer, folder: str | Path) -> None:
    """Write config.json and model.safetensors, which `transformers` opens unchanged.

    (Except where hidden_size is no multiple of n_heads: it refuses such a Llama.)

    Raises:
        CheckpointError: the folder holds what would be read with it, weights share memory, or a tied model
            has an LM head of its own; nothing is written.
        OSError: the files cannot be written. What was there is as before, or is without its config.json.
    """
    folder = Path(folder)
    for other in (INDEX, GENERATION_FILE):
        if (folder / other).exists():
            raise CheckpointError(f"{folder} holds {other}, of another checkpoint; expected another folder")
    config = config_to_json(model.config, model.embed_tokens.weight.dtype)
    weights = stored(model)
    result = folder / ".partial"  # where a run that is killed leaves what it wrote, and the next removes it
    result.mkdir(parents=True, exist_ok=True)
    try:
        (result / WEIGHTS).write_bytes(as_bytes(weights, metadata={"format": "pt"}))
        text = json.dumps(config, indent=2, default=lambda number: number.item())  # NumPy's numbers
        (result / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        (folder / CONFIG_FILE).unlink(missing_ok=True)  # new weights with an old config are another model
        for name in (WEIGHTS, CONFIG_FILE):
            (result / name).replace(folder / name)
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be saved: {error}") from None
    finally:
        shutil.rmtree(result)


def stored(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors to write, by their names in the file; errors as in `save`."""
    state = model.state_dict()
    if model.config.tied and not torch.equal(state.pop(LM_HEAD), state[EMBEDDING]):
        raise CheckpointError(
            f"{LM_HEAD} is not {EMBEDDING}, though the model is tied; call model.tie() to drop it, or make "
            "the model with tied=False"
        )
    return {(name if name == LM_HEAD else PREFIX + name): x.cpu().contiguous() for name, x in state.items()}
