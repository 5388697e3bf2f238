"""Weights in safetensors files, one or several with an index, read and written; never a pickle."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers.model.load.config import CONFIG_FILE, GENERATION_FILE, config_to_json
from helpers.model.load.files import CheckpointError, check_file, names_in, read_json, reading
from helpers.model.load.weights import EMBEDDING, READOUT, converted
from helpers.model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PREFIX = "model."  # before every name in a file but the readout's


def read(folder: Path, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Read the tensors of a folder, by the model's names for them; arguments and errors as in `load`."""
    refuse_other_files(folder)
    if not (folder / INDEX).exists():
        return read_files(folder, [WEIGHTS], dtype)
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{INDEX} has no weight_map; expected the file of each tensor")
    for tensor, file in places.items():
        if not isinstance(file, str) or not re.fullmatch(r"\w[\w.-]*\.safetensors", file):
            raise CheckpointError(
                f"{INDEX} puts {tensor} into {file!r}; expected a .safetensors file in the same folder"
            )
    return read_files(folder, sorted(set(places.values())), dtype)


def read_files(folder: Path, files: list[str], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Read every tensor of these files, wherever an index says that it is."""
    weights: dict[str, Tensor] = {}
    for file in files:
        path = check_file(folder / file)
        with (
            reading(path, " is damaged or cut off"),
            safe_open(path, framework="pt", device="cpu") as opened,
        ):
            for name in opened.keys():  # noqa: SIM118 - it is no dict
                ours = name.removeprefix(PREFIX)
                if ours in weights:
                    raise CheckpointError(f"the tensor {name} stands twice; expected it once")
                if not name.endswith("rotary_emb.inv_freq"):  # in old files; it follows from config.json
                    weights[ours] = converted(name, opened.get_tensor(name), dtype)
    return weights


def refuse_other_files(folder: Path) -> None:
    """Raise CheckpointError where the folder holds what would have to be read too, or instead."""
    found = names_in(folder)
    if found >= {WEIGHTS, INDEX}:
        raise CheckpointError(f"{folder} holds {WEIGHTS} and {INDEX}; expected one of the two")
    if "adapter_config.json" in found:
        raise CheckpointError(f"{folder} holds an adapter (adapter_config.json); expected a whole model")
    pickles = sorted(name for name in found if name.endswith((".bin", ".pt", ".pth", ".pkl")))
    if not found & {WEIGHTS, INDEX}:
        told = f"; {pickles[0]} is a pickle, which may run code when read" if pickles else ""
        raise CheckpointError(f"{folder} holds no {WEIGHTS} and no {INDEX}{told}")


def save(model: Transformer, folder: str | Path) -> None:
    """Write config.json and model.safetensors, which `transformers` opens unchanged.

    (Except where hidden_size is no multiple of n_heads: it refuses such a Llama.)

    Raises:
        CheckpointError: the folder holds what would be read with it, weights are NaN or infinite or share
            memory, or a tied model has a readout of its own; nothing is written.
        OSError: the files cannot be written. What was there is as before, or is without its config.json.
    """
    folder = Path(folder)
    for other in (INDEX, GENERATION_FILE):
        if (folder / other).exists():
            raise CheckpointError(f"{folder} holds {other}, of another checkpoint; expected another folder")
    config = config_to_json(model.config, model.embed_tokens.weight.dtype)
    weights = stored(model)
    made = folder / ".partial"  # where a run that is killed leaves what it wrote, and the next removes it
    made.mkdir(parents=True, exist_ok=True)
    try:
        save_file(weights, made / WEIGHTS, metadata={"format": "pt"})
        text = json.dumps(config, indent=2, default=lambda number: number.item())  # NumPy's numbers
        (made / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        mode = (made / CONFIG_FILE).stat().st_mode  # safetensors lets the owner alone read what it writes
        (made / WEIGHTS).chmod(mode)
        (folder / CONFIG_FILE).unlink(missing_ok=True)  # new weights with an old config are another model
        for name in (WEIGHTS, CONFIG_FILE):
            (made / name).replace(folder / name)
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be saved: {error}") from None
    finally:
        shutil.rmtree(made)


def stored(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors to write, by their names in the file; errors as in `save`."""
    state = model.state_dict()
    if model.config.tied and not torch.equal(state.pop(READOUT), state[EMBEDDING]):
        raise CheckpointError(
            f"{READOUT} is not {EMBEDDING}, though the model is tied; call model.tie() to drop it, or make "
            "the model with tied=False"
        )
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"the tensor {name} holds NaN or infinity; expected numbers: nothing is saved"
            )
    return {(name if name == READOUT else PREFIX + name): x.cpu().contiguous() for name, x in state.items()}
