"""Record the published model of the gallery: `python -m tools published`.

It needs the model or a network. It writes tools/data/smollm2.json, from which the gallery is made without the
model. The file has the attention weights of three heads in three layers; those of all 9 heads in all 30
layers would be thirty times as many.
"""

from __future__ import annotations

import sys

from helpers.model import published
from helpers.model.load import load, load_tokenizer
from helpers.recording.model import record_model
from tools.launch import DATA, argument_parser

PATH = DATA / "smollm2.json"
PROMPT = "Today's weather is so"
LAYERS, HEADS = (1, 16, 23), (0, 2, 8)  # from 0; layers and heads in which there is something to see


def main() -> None:
    """Record how the model continues the prompt, with and without the cache."""
    argument_parser(__doc__).parse_args()
    folder = published.find_published()
    if folder is None:
        sys.exit("the model is not on this machine and cannot be downloaded; nothing was written")
    trace = record_model(
        load(folder),
        PROMPT,
        load_tokenizer(folder),
        max_new_tokens=12,
        recorded=[(layer, head) for layer in LAYERS for head in HEADS],
        training=False,
        name="SmolLM2-135M-Instruct",
    )
    trace.save(PATH)
    print(f"{PATH}, {PATH.stat().st_size / 1000:.0f} kB")
