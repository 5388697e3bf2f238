"""Load a model and its tokenizer from a checkpoint, and save a model.

Supported models are Llama (including SmolLM2), SmolLM3, Mistral, Qwen2, Qwen2.5, Qwen3, DeepSeek-V3 without
experts, and the models of this project. A checkpoint is a folder in the Hugging Face layout, a name on the
Hugging Face Hub, or a GGUF file. If this package cannot run a checkpoint correctly, it raises an error that
names the reason.
"""

from __future__ import annotations

from pathlib import Path

import torch

from helpers.model.load import safetensors
from helpers.model.load.config import read_config
from helpers.model.load.files import CheckpointError
from helpers.model.load.hub import find_checkpoint
from helpers.model.load.safetensors import save
from helpers.model.load.tokenizer import chat_prompt, load_tokenizer
from helpers.model.load.weights import DTYPES, make_model_with_weights
from helpers.model.transformer import Transformer


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, max_seq_len: int | None = None
) -> Transformer:
    """Load a model from a folder, a GGUF file, or the Hugging Face Hub.

    Args:
        source: a folder with config.json and either model.safetensors or the index of several such files; a
            .gguf file, or a folder with one .gguf file and no config.json; or a name on the Hub, owner/name.
        dtype: dtype of the weights in memory. None keeps the dtype of the safetensors files; for a GGUF file,
            None means float32.
        max_seq_len: maximum sequence length, if it is to be shorter than the checkpoint's, such as the window
            of a model with sliding windows.

    Returns:
        The model, with all its weights, on the CPU.

    Raises:
        CheckpointError: a file, tensor or setting of the checkpoint is missing, damaged, unexpected or not
            supported; the message names it. A changed weight that is still a finite number cannot be
            detected.
    """
    if dtype is not None and dtype not in DTYPES:
        raise CheckpointError(f"dtype is {dtype!r}; expected a float type, such as torch.float32")
    path = find_checkpoint(source)
    if path.suffix == ".gguf":
        from helpers.model.load import gguf  # the package gguf takes a while, and few need it

        config, weights = gguf.read_gguf(path, dtype, max_seq_len)
    else:
        config, weights = read_config(path, max_seq_len), safetensors.read_weights(path, dtype)
    return make_model_with_weights(config, weights)
