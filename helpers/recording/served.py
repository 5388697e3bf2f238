"""An engine's run, small enough to follow page by page."""

from __future__ import annotations

from helpers.model import evaluate
from helpers.model.transformer import Transformer
from helpers.recording.engine import StepRecorder
from helpers.serve.engine import Engine
from helpers.tokenizer import Tokenizer
from helpers.trace import EngineTrace


def six_diaries(model: Transformer, tokenizer: Tokenizer) -> EngineTrace:
    """Serve three texts that begin alike and three others, on 12 pages of 6 rows: pages run out once."""
    begin = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake."
    alike = (f"{begin} {more}" for more in ("Today weather is so", "Today weather is cold", "A fox slept in"))
    others = (tokenizer.encode(diary.text) for diary in evaluate.held_out_diaries(6, seed=1)[1:4])
    a, c, e = map(tokenizer.encode, alike)
    b, d, f = (tokens[:n] for tokens, n in zip(others, (14, 22, 10), strict=True))
    coming = {0: [("A", a, 12), ("B", b, 5)], 1: [("C", c, 12)], 4: [("D", d, 10)], 7: [("E", e, 9)]}
    coming[10] = [("F", f, 8)]
    engine = Engine(model, slots=3, budget=24, n_pages=12, page_size=6, eos_ids=())
    with StepRecorder(engine.scheduler, lambda token: tokenizer.decode([token]), "diaries") as recorder:
        for n in range(100):
            for request in coming.pop(n, []):
                engine.add(*request)
            if engine.busy:
                engine.step()
    return recorder.trace
