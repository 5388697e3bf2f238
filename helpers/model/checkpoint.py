"""Checkpoints in the Hugging Face layout of the Llama family: config.json and safetensors, never pickle.

Llama (SmolLM2 among them), Mistral, Qwen2 and Qwen2.5. What this model cannot do right is refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers.model.config import ModelConfig
from helpers.model.config_json import CONFIG, CheckpointError, config_to_json, read_config, read_json
from helpers.model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DOWNLOADED = [CONFIG, WEIGHTS, INDEX, "model-*.safetensors", "tokenizer.json"]
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
READOUT, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, max_seq_len: int | None = None
) -> Transformer:
    """Load a model from a folder, or by name (owner/name) from the Hugging Face Hub.

    Args:
        source: a folder with config.json and model.safetensors, or an index of several files; else a name.
        dtype: of the weights in memory; None keeps the file's.
        max_seq_len: a shorter context than the checkpoint's, such as the window of a sliding-window model.

    Returns:
        The model, whole, on the CPU.

    Raises:
        CheckpointError: anything missing, damaged, unexpected or unsupported, by name; nothing is loaded.
            Weights that are changed but still finite numbers cannot be told from right ones.
    """
    if dtype is not None and dtype not in DTYPES.values():
        raise CheckpointError(f"dtype is {dtype!r}; expected a float type, such as torch.float32")
    folder = find_folder(source)
    config = read_config(folder, max_seq_len)
    weights = read_weights(folder, config, dtype)
    with torch.device("meta"):  # no memory, no drawing of weights that are replaced at once
        model = Transformer(config)
    named = {ours: weights[theirs] for ours, theirs in names_of(model)}
    model.load_state_dict({READOUT: named["embed_tokens.weight"]} | named, assign=True)
    model.tie()
    return model


def save(model: Transformer, folder: str | Path) -> None:
    """Write config.json and model.safetensors, which `transformers` opens unchanged.

    Raises:
        CheckpointError: the folder holds a checkpoint of several files, weights are NaN or infinite, or
            `transformers` would refuse the sizes; nothing is written.
        OSError: the files cannot be written; a checkpoint that was there is as before.
    """
    folder = Path(folder)
    check_place(folder)
    config = config_to_json(model.config, model.embed_tokens.weight.dtype)
    state = model.state_dict()
    weights = {theirs: state[ours].cpu().contiguous() for ours, theirs in names_of(model)}
    check_finite(weights)
    folder.mkdir(parents=True, exist_ok=True)
    made = {WEIGHTS: folder / (WEIGHTS + ".partial"), CONFIG: folder / (CONFIG + ".partial")}
    try:
        save_file(weights, made[WEIGHTS], metadata={"format": "pt"})
        made[CONFIG].write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        made[WEIGHTS].chmod(made[CONFIG].stat().st_mode)  # safetensors lets the owner alone read it
        put(made, folder)
    finally:
        for path in made.values():
            path.unlink(missing_ok=True)


def check_place(folder: Path) -> None:
    """Raise CheckpointError where a checkpoint of one file cannot be put."""
    if (folder / INDEX).exists():
        raise CheckpointError(
            f"{folder} holds {INDEX}, which belongs to another checkpoint; expected another folder"
        )
    for name in (WEIGHTS, CONFIG):
        if (folder / name).is_dir():
            raise CheckpointError(f"{folder / name} is a folder; expected a file or nothing: move it away")


def put(made: dict[str, Path], folder: Path) -> None:
    """Rename files to their places, all or none: new weights with an old config are another model."""
    kept = {folder / name: folder / (name + ".before") for name in made}
    with ExitStack() as undo:  # after an error it runs what it was told, the last first
        for place, aside in kept.items():
            if place.exists():
                place.replace(aside)
                undo.callback(aside.replace, place)
        for name, path in made.items():
            path.replace(folder / name)
            undo.callback((folder / name).unlink)
        undo.pop_all()
    for aside in kept.values():
        aside.unlink(missing_ok=True)


def check_finite(weights: dict[str, Tensor]) -> None:
    """Raise CheckpointError for NaN or infinity, which `load` would take for a damaged file."""
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"the tensor {name} holds NaN or infinity; expected numbers: nothing is saved"
            )


def names_of(model: Transformer) -> Iterator[tuple[str, str]]:
    """Yield (our name, the checkpoint's name) of each tensor that is stored."""
    for name in model.state_dict():
        if name != READOUT:
            yield name, f"model.{name}"
        elif not model.config.tied:
            yield name, name


def stored_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each tensor that a checkpoint of this config holds."""
    C, F, V, D = config.hidden_size, config.intermediate_size, config.vocab_size, config.head_dim
    widths = {"q": config.n_heads * D, "k": config.n_kv_heads * D, "v": config.n_kv_heads * D}
    yield EMBEDDING, (V, C)
    for layer in range(config.n_layers):
        block = f"model.layers.{layer}"
        for name, width in widths.items():
            yield f"{block}.self_attn.{name}_proj.weight", (width, C)
            if config.qkv_bias:
                yield f"{block}.self_attn.{name}_proj.bias", (width,)
        yield f"{block}.self_attn.o_proj.weight", (C, widths["q"])
        for name in ("gate", "up"):
            yield f"{block}.mlp.{name}_proj.weight", (F, C)
        yield f"{block}.mlp.down_proj.weight", (C, F)
        for name in ("input", "post_attention"):
            yield f"{block}.{name}_layernorm.weight", (C,)
    yield "model.norm.weight", (C,)
    if not config.tied:
        yield READOUT, (V, C)


def find_folder(source: str | Path) -> Path:
    """Return the folder that holds a checkpoint, downloaded if `source` is a name on the Hub."""
    if not isinstance(source, str | Path):
        raise CheckpointError(f"the source is {source!r}; expected a folder, or a Hub name: owner/name")
    path = Path(source)
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises OSError for a name that is too long
        return path
    if os.path.exists(path):  # noqa: PTH110
        raise CheckpointError(f"{path} is a file; expected the folder that holds {CONFIG}")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(source)):
        raise CheckpointError(f"there is no folder {str(source)!r}; expected one, or a Hub name: owner/name")
    return download(str(source))


def download(name: str) -> Path:
    """Fetch a checkpoint from the Hub, with a progress bar; files that are here already are not fetched."""
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED))
    except errors.GatedRepoError:
        why = "its owner asks you to accept terms first: do so on its page, then log in with `hf auth login`"
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        why = "the Hub knows no such name, or it is private: look for a slip in it"
    except Exception as error:  # whatever the transport raises where there is no network
        told = (str(error).strip() or type(error).__name__).splitlines()[0]
        why = f"the Hub could not be read ({told}): check the network, or pass a folder"
    raise CheckpointError(f"{name!r} is no folder here, and could not be downloaded: {why}")


def weight_files(folder: Path) -> dict[str, list[str] | None]:
    """Return the weight files and what the index says is in each; None where there is no index."""
    refuse_other_files(folder)
    if not (folder / INDEX).exists():
        return {WEIGHTS: None}
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{INDEX} has no weight_map; expected the file of each tensor")
    files: dict[str, list[str] | None] = {}
    for tensor, file in places.items():
        if not isinstance(file, str) or not re.fullmatch(r"\w[\w.-]*\.safetensors", file):
            raise CheckpointError(
                f"{INDEX} puts {tensor} into {file!r}; expected a .safetensors file in the same folder"
            )
        files[file] = [*(files.get(file) or []), tensor]
    return files


def refuse_other_files(folder: Path) -> None:
    """Raise CheckpointError where the folder holds what would have to be read too, or instead."""
    found = {path.name for path in folder.iterdir()}
    ours = found & {WEIGHTS, INDEX}
    if len(ours) == 2:
        raise CheckpointError(f"{folder} holds {WEIGHTS} and {INDEX}; expected one of the two")
    if "adapter_config.json" in found:
        raise CheckpointError(f"{folder} holds an adapter (adapter_config.json); expected a whole model")
    pickles = sorted(name for name in found if name.endswith((".bin", ".pt", ".pth", ".pkl")))
    if not ours:
        told = f"; {pickles[0]} is a pickle, which may run code when read" if pickles else ""
        raise CheckpointError(f"{folder} holds no {WEIGHTS} and no {INDEX}{told}")


def read_weights(folder: Path, config: ModelConfig, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Read every tensor that the config calls for, checked; arguments and errors as in `load`."""
    with ExitStack() as stack:
        place: dict[str, Any] = {}
        for file, listed in weight_files(folder).items():
            opened = stack.enter_context(open_weights(folder / file))
            check_listing(file, set(opened.keys()), listed)
            place |= dict.fromkeys(opened.keys(), opened)
        for name, shape in stored_shapes(config):
            check_tensor(name, shape, place)
        expected = [name for name, _ in stored_shapes(config)]
        check_dtypes({name: place[name].get_slice(name).get_dtype() for name in expected}, dtype)
        check_extra(sorted(set(place) - set(expected)), config, place)
        return {name: read_tensor(name, place[name], dtype) for name in expected}


def open_weights(path: Path) -> Any:
    """Open a safetensors file; CheckpointError if it is missing, cut off or damaged."""
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing from {path.parent}")
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or cut off ({error}); fetch it again") from None


def check_listing(file: str, found: set[str], listed: list[str] | None) -> None:
    """Raise CheckpointError where a file does not hold what the index says."""
    if listed is None or found == set(listed):
        return
    name = sorted(found ^ set(listed))[0]
    has, says = ("holds", "does not list it there") if name in found else ("lacks", "lists it there")
    raise CheckpointError(f"{file} {has} the tensor {name}, {INDEX} {says}")


def check_tensor(name: str, shape: tuple[int, ...], place: dict[str, Any]) -> None:
    """Raise CheckpointError if a tensor is missing, of another shape, or of a type that is no float."""
    if name not in place:
        raise CheckpointError(f"the tensor {name} is missing; expected one of shape {shape}")
    got = tuple(place[name].get_slice(name).get_shape())
    if got != shape:
        raise CheckpointError(f"the tensor {name} has shape {got}; expected {shape}, as {CONFIG} says")


def check_dtypes(found: dict[str, str], dtype: torch.dtype | None) -> None:
    """Raise CheckpointError for a type that is no plain float, and for two types where one is needed."""
    first, kind = next(iter(found.items()))
    for name, other in found.items():
        if other not in DTYPES:
            raise CheckpointError(f"the tensor {name} is {other}; expected one of {', '.join(DTYPES)}")
        if dtype is None and other != kind:
            raise CheckpointError(
                f"{first} is {kind}, {name} is {other}; expected one type: choose it, dtype=torch.float32"
            )


def check_extra(names: list[str], config: ModelConfig, place: dict[str, Any]) -> None:
    """Raise CheckpointError for a tensor that this model would leave unused, unless that is harmless."""
    for name in names:
        if name.endswith("rotary_emb.inv_freq"):  # old files hold it; it follows from config.json
            continue
        if not (name == READOUT and config.tied and is_embedding(place)):
            raise CheckpointError(f"the tensor {name} is unexpected; by {CONFIG} there is none")


def is_embedding(place: dict[str, Any]) -> bool:
    """Whether the readout that a file of a tied model holds is the embedding again."""
    if place[READOUT].get_slice(READOUT).get_dtype() not in DTYPES:  # torch cannot compare eight-bit floats
        return False
    return torch.equal(place[READOUT].get_tensor(READOUT), place[EMBEDDING].get_tensor(EMBEDDING))


def read_tensor(name: str, opened: Any, dtype: torch.dtype | None) -> Tensor:
    """Read one tensor into memory of its own; CheckpointError if it holds NaN or infinity then."""
    tensor = opened.get_tensor(name)
    cast = tensor.to(dtype or tensor.dtype, copy=True)
    if torch.isfinite(cast).all():
        return cast
    if torch.isfinite(tensor).all():
        raise CheckpointError(
            f"the tensor {name} holds {tensor.abs().max():.3g}, over the largest {dtype}; expected a wider "
            "type, such as torch.float32"
        )
    raise CheckpointError(f"the tensor {name} holds NaN or infinity: the file is damaged; fetch it again")
