"""Record a run of a published model, SmolLM2, for the gallery: `python -m tools published`.

This needs the model's files, which are downloaded if they are not on this machine. The trace is written to
tools/data/smollm2.json, so that the gallery can be made without the model. It contains the attention weights
of only three heads in each of three layers. All 9 heads in all 30 layers would take thirty times as much
space.
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
    """Run the model on PROMPT, once with the KV cache and once without it, and write the trace."""
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
