"""Record the published model of the gallery: `python .ci/record_published.py`, where it can be had.

Writes .ci/smollm2.json, from which the gallery is made without the model. Of the attention weights of 30
layers of 9 heads it holds those of three heads in three layers: all would be thirty times as many.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.model import published  # noqa: E402
from helpers.model.load import load, load_tokenizer  # noqa: E402
from helpers.recording.model import record_model  # noqa: E402

PATH = Path(__file__).with_name("smollm2.json")
PROMPT = "Today's weather is so"
LAYERS, HEADS = (1, 16, 23), (0, 2, 8)  # from 0; where there is something to see


def main() -> None:
    """Let the model go on with the prompt, with the cache and without, and keep the record."""
    found = published.find()
    if found is None:
        sys.exit("the model is not here and cannot be fetched; nothing was written")
    trace = record_model(
        load(found),
        PROMPT,
        load_tokenizer(found),
        max_new=12,
        recorded=[(layer, head) for layer in LAYERS for head in HEADS],
        training=False,
        name="SmolLM2-135M-Instruct",
    )
    trace.save(PATH)
    print(f"{PATH}, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
