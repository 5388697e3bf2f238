"""Record the diary that the page and the notebooks race: `python .ci/record_diary.py` (a few seconds).

Writes helpers/recording/diary.json; a test compares it with what the shipped model says today.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.model import shipped  # noqa: E402
from helpers.recording.diary import PATH  # noqa: E402
from helpers.recording.model import record_model  # noqa: E402
from helpers.sampling import Sampling  # noqa: E402
from helpers.trace import Trace  # noqa: E402

PROMPT = "Mia writes from Oslo . Monday is sunny in Oslo . Mia swam in the lake . Today weather is so nice ."
WORDS = 24
SEED = 49  # one that signs with its 24th word; training never saw Mia in Oslo


def record() -> Trace:
    """Let the shipped model finish the diary, with the cache and without."""
    model, tokenizer = shipped.load()
    name = "weather diaries"
    trace = record_model(
        model, PROMPT, tokenizer, max_new=WORDS, training=False, sampling=Sampling(1.0, seed=SEED), name=name
    )
    for run in trace.runs:
        for step in run.passes:
            step.parts[0].contexts = {}  # most of the file, and no view shows 32 numbers
    return trace


def main() -> None:
    """Record it and say where it is."""
    record().save(PATH)
    print(f"{PATH}, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
