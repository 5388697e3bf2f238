"""llama.cpp through its C interface, on a GGUF file: Python's overhead is one call a pass."""

from __future__ import annotations

import ctypes
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

NO_TOKENIZER = {"tokenizer.ggml.model": "none"}  # metadata: ids come in, logits go out
QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def library() -> Any | None:
    """Return llama.cpp's functions; None where `llama-cpp-python` is not installed."""
    try:
        llama = importlib.import_module("llama_cpp.llama_cpp")
    except ImportError:
        return None
    llama.llama_log_set(QUIET, None)
    llama.llama_backend_init()
    return llama


class Llama:
    """A model of a GGUF file, with one sequence in its cache; what is not said here is llama.cpp's default.

    Args:
        llama: `library()`.
        path, bits: the file, and the bits of a weight in it.
        threads, max_len: cores that it may use; rows of its cache, which has 16 bits an element by default.
    """

    def __init__(self, llama: Any, path: Path, bits: int, threads: int, max_len: int) -> None:
        self.llama, self.bits = llama, bits
        self.model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        settings = llama.llama_context_default_params()
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = max_len, threads, threads
        self.context = llama.llama_init_from_model(self.model, settings)
        if not self.model or not self.context:
            raise ValueError(f"llama.cpp cannot open {path}; expected a GGUF file of a Llama")
        self.vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def run(self, tokens: Tensor, keep: int, every: bool = False) -> np.ndarray:
        """Forget all rows but `keep`, run ids (1, T); logits of the last, (1, V), or of every one."""
        llama, T = self.llama, tokens.shape[1]
        llama.llama_memory_seq_rm(llama.llama_get_memory(self.context), 0, keep, -1)
        ids = (ctypes.c_int32 * T)(*tokens[0].tolist())  # a name of its own: the batch does not keep it
        batch = llama.llama_batch_get_one(ids, T)
        batch.logits = (ctypes.c_int8 * T)(*[every] * (T - 1), True)
        if failed := llama.llama_decode(self.context, batch):
            raise RuntimeError(f"llama.cpp: llama_decode gave {failed}; expected 0")
        logits = llama.llama_get_logits(self.context)
        return np.ctypeslib.as_array(logits, (T if every else 1, self.vocab_size))

    def play(self, prompt: Tensor, n: int) -> tuple[list[float], list[int]]:
        """Generate greedily: seconds of each token, the prompt's pass first, and the ids."""
        times, output, tokens, keep = [time.perf_counter()], [], prompt, 0
        for _ in range(n):
            output.append(int(self.run(tokens, keep)[-1].argmax()))
            times.append(time.perf_counter())
            keep, tokens = keep + tokens.shape[1], prompt.new_tensor([output[-1:]])
        return np.diff(times).tolist(), output

    def close(self) -> None:
        self.llama.llama_free(self.context)
        self.llama.llama_model_free(self.model)
