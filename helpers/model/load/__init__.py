"""Checkpoints that others made, and our own: load a model and its tokenizer, save a model.

Llama (SmolLM2 among them), SmolLM3, Mistral, Qwen2, Qwen2.5, Qwen3 and DeepSeek-V3 without experts, as a
folder in the Hugging Face layout, by name from the Hub, or as a GGUF file. A model that ours cannot run
correctly is refused, with the reason by name.
"""

from __future__ import annotations

from pathlib import Path

import torch

from helpers.model.load import safetensors
from helpers.model.load.config import read_config
from helpers.model.load.files import CheckpointError
from helpers.model.load.hub import find
from helpers.model.load.safetensors import save
from helpers.model.load.tokenizer import chat_prompt, load_tokenizer
from helpers.model.load.weights import DTYPES, assemble
from helpers.model.transformer import Transformer


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, max_seq_len: int | None = None
) -> Transformer:
    """Load a model from a folder, from a GGUF file, or by name (owner/name) from the Hugging Face Hub.

    Args:
        source: a folder with config.json and model.safetensors, or an index of several files; a .gguf file,
            or a folder with that alone; else a name.
        dtype: of the weights in memory; None keeps the file's, and makes float32 of a GGUF file's.
        max_seq_len: a shorter context than the checkpoint's, such as the window of a sliding-window model.

    Returns:
        The model, whole, on the CPU.

    Raises:
        CheckpointError: anything missing, damaged, unexpected or unsupported, by name; nothing is loaded.
            Weights that are changed but still finite numbers cannot be told from right ones.
    """
    if dtype is not None and dtype not in DTYPES:
        raise CheckpointError(f"dtype is {dtype!r}; expected a float type, such as torch.float32")
    path = find(source)
    if path.suffix == ".gguf":
        from helpers.model.load import gguf  # the package gguf takes a while, and few need it

        config, weights = gguf.read(path, dtype, max_seq_len)
    else:
        config, weights = read_config(path, max_seq_len), safetensors.read(path, dtype)
    return assemble(config, weights)
