"""Check a checkpoint's weights, whatever its file format, and make a model with these weights."""

from __future__ import annotations

import textwrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from helpers.model.config import ModelConfig
from helpers.model.load.files import CheckpointError
from helpers.model.model_classes import make_model
from helpers.model.transformer import Transformer

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
LM_HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


def convert_tensor(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return a copy of a stored tensor that shares no memory with the weight file.

    Args:
        name: name of the tensor, for messages.
        tensor: the tensor as stored.
        dtype: dtype of the copy; None keeps that of the tensor.

    Raises:
        CheckpointError: the tensor does not contain floats of 16 bits or more, or the copy contains NaN or
            infinity, perhaps because a weight is too large for `dtype`.
    """
    if tensor.dtype not in DTYPES:
        raise CheckpointError(f"the tensor {name} is {tensor.dtype}; expected a float of 16 bits or more")
    cast = tensor.to(dtype or tensor.dtype, copy=True)
    if not torch.isfinite(cast).all():
        raise CheckpointError(
            f"the tensor {name} holds NaN, infinity or what is over the largest {cast.dtype}; expected "
            "numbers: choose a wider type, such as torch.float32, or fetch the file again"
        )
    return cast


def make_model_with_weights(config: ModelConfig, weights: dict[str, Tensor]) -> Transformer:
    """Return a model with the given weights.

    Args:
        config: config of the model.
        weights: tensors by their names in the model. They are not copied.

    Raises:
        CheckpointError: a tensor is missing, is unexpected, or does not have the shape that the config
            requires; the tensors have different dtypes; or the LM head and the embedding differ although the
            config ties them.
    """
    n_stored = sum(tensor.numel() for tensor in weights.values())
    if config.n_parameters > 2 * n_stored:  # before anything of these sizes is built
        raise CheckpointError(
            f"the sizes make a model of {config.n_parameters:,} parameters; expected {n_stored:,}, as "
            "many as are stored: one of the sizes is wrong, or tensors are missing; fetch it again"
        )
    dtypes = sorted({str(tensor.dtype) for tensor in weights.values()})
    if len(dtypes) > 1:
        raise CheckpointError(f"the tensors are {dtypes}; expected one type: choose it, dtype=torch.float32")
    if config.tied and EMBEDDING in weights:
        weights = {LM_HEAD: weights[EMBEDDING]} | weights
        if not torch.equal(weights[LM_HEAD], weights[EMBEDDING]):
            raise CheckpointError(f"{LM_HEAD} is not {EMBEDDING}, though the config says that they are tied")
    with torch.device("meta"), NoInit():  # without memory, and without random weights that would be replaced
        model = make_model(config)
    try:
        model.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        message = textwrap.shorten(str(error).partition(":")[2], 400)
        raise CheckpointError(f"the weights do not fit the config: {message}") from None
    model.tie_weights()
    return model


class NoInit(TorchFunctionMode):
    """A context that skips random initialization.

    For tensors on the device `meta`, random initialization would make PyTorch import packages, which takes
    seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if func is nn.init.normal_ else func(*args, **(kwargs or {}))
