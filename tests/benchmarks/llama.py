"""Run llama.cpp on a GGUF file through its C interface, with only one call from Python per pass."""

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
    """Return the module with llama.cpp's C functions, or None if `llama-cpp-python` is not installed."""
    try:
        llama = importlib.import_module("llama_cpp.llama_cpp")
    except ImportError:
        return None
    llama.llama_log_set(QUIET, None)
    llama.llama_backend_init()
    return llama


class Llama:
    """A model from a GGUF file in llama.cpp, with one sequence in its KV cache.

    All other settings have llama.cpp's defaults.

    Args:
        llama: the result of `library()`.
        path: the GGUF file.
        bits: bits per weight in the file.
        threads: number of threads.
        max_len: maximum number of cached tokens. By default, llama.cpp stores keys and values with 16 bits.
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
        """Run token ids of shape (1, T), and return the last token's logits, of shape (1, V).

        If `every` is true, the logits of all tokens are returned, of shape (T, V). Before the pass, all
        cached tokens except the first `keep` are removed.
        """
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
        """Generate `n` tokens greedily. Return the seconds per token and the token ids.

        The first time is that of the prefill.
        """
        times, output, tokens, keep = [time.perf_counter()], [], prompt, 0
        for _ in range(n):
            output.append(int(self.run(tokens, keep)[-1].argmax()))
            times.append(time.perf_counter())
            keep, tokens = keep + tokens.shape[1], prompt.new_tensor([output[-1:]])
        return np.diff(times).tolist(), output

    def close(self) -> None:
        self.llama.llama_free(self.context)
        self.llama.llama_model_free(self.model)
