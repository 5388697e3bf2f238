"""Print the peak memory of one prefill or of some decode steps, in a process of its own; Linux only.

    python tests/benchmarks/peak_memory.py FOLDER preallocated|growing|transformers prefill|decode THREADS

`bench_model.py` calls it. The last line is JSON: bytes of weights, of the cache, and the peak over both.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from helpers.model.cache import GrowingCache, StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.load import load

LENGTH, STEPS = 2048, 24


def held() -> int:
    """Bytes of memory that the process holds, without files that are mapped into it (libraries, say)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell RssAnon")


def peak_of(task: Callable[[], Any]) -> int:
    """Bytes that a task took at its peak, over what the process held before; a thread looks all the time."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what earlier work left free
    before = peak = held()
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.0005):
            peak = max(peak, held())

    watcher = threading.Thread(target=look)
    watcher.start()
    task()
    done.set()
    watcher.join()
    return peak - before


def ours(folder: str, who: str, phase: str) -> dict[str, int]:
    """Measure this project's model with one of its two caches."""
    model = load(folder)
    config = model.config
    prompt = torch.randint(1, config.vocab_size, (1, LENGTH))
    make = {"preallocated": StaticCache, "growing": GrowingCache}[who]
    prefill(model, prompt[:, :8], make(config))  # libraries load their parts
    cache = make(config)
    if phase == "decode":
        prefill(model, prompt[:, :-STEPS], cache)

    def task() -> None:
        if phase == "prefill":
            prefill(model, prompt, cache)
        else:
            for _ in range(STEPS):
                decode_step(model, [[1]], cache)

    before = cache.nbytes  # all of a preallocated one, and filled with zeros: it is held already
    over = peak_of(task) - (cache.nbytes - before)
    return {"weights": config.n_parameters * 4, "cache": cache.nbytes, "over": over}


@torch.no_grad()
def theirs(folder: str, phase: str) -> dict[str, int]:
    """Measure the model of `transformers` with its default cache."""
    import transformers

    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.randint(1, model.config.vocab_size, (1, LENGTH))
    model(prompt[:, :8])
    cache: Any = transformers.DynamicCache(config=model.config)

    def run(tokens: torch.Tensor) -> Any:
        return model(tokens, past_key_values=cache, logits_to_keep=1)

    if phase == "prefill":
        over = peak_of(lambda: run(prompt))
    else:
        run(prompt[:, :-STEPS])
        over = peak_of(lambda: [run(torch.tensor([[1]])) for _ in range(STEPS)])
    stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    new = LENGTH if phase == "prefill" else STEPS
    return {"weights": model.num_parameters() * 4, "cache": stored, "over": over - new * stored // LENGTH}


def main() -> None:
    folder, who, phase, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    print(json.dumps(theirs(folder, phase) if who == "transformers" else ours(folder, who, phase)))


if __name__ == "__main__":
    main()
