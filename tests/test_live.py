"""Live, the Python face: its file and its errors; tests/js and tests/browser hold the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

from safetensors.torch import load as load_bytes

from helpers import corpus
from helpers.recording.diary import load_diary
from helpers.stepper import Live
from helpers.stepper.live import LIVE, NAME_HEAD
from helpers.stepper.page import Section, build_page, file_script


def test_the_head_finds_names_and_cities() -> None:
    """By the weights of a recorded run: at "by" and a full stop the name, at "from" and "in" the city."""
    trace = load_diary()
    texts = [token.text for token in trace.sequences[0].tokens]
    by = texts.index("by")
    assert (texts[by + 2], texts[13], texts[22]) == ("from", "in", ".")
    for query, found in ((by, "Mia"), (by + 2, "Oslo"), (13, "Oslo"), (22, "Mia")):
        weights = trace.attention_weights(query, NAME_HEAD["layer"], NAME_HEAD["head"])
        assert sum(w for w, text in zip(weights, texts, strict=False) if text == found) > 0.5


def test_words_of_a_kind_are_words_of_the_model() -> None:
    view = Live()
    data = json.loads(view.data)
    known = set(corpus.vocabulary())
    for kind in data["kinds"]:
        assert len(kind) > 1
        assert known.issuperset(kind)
    assert {data["until"], data["other"]} <= known
    said = re.findall(r"\w+", " ".join(re.findall(r"\((.*?)\)", LIVE["knows"])))
    assert known.issuperset(said), "what it says that it knows"
    assert data["known"] == len(known) - 2, "all but the full stop and the end"
    prompt = view.options["text"].replace(".", " .").split()
    assert known.issuperset(prompt)
    assert data["parameters"] == sum(x.numel() for x in load_bytes(view.file.read_bytes()).values())
    assert repr(view) == f"Live({len(prompt)} tokens, seed 12)"


def test_the_model_stands_in_the_page_or_beside_it(tmp_path: Path) -> None:
    whole, light = (
        build_page("Live", [Section(view=Live())], separate_files=beside) for beside in (False, True)
    )
    name, script = file_script(Live.file)
    weights = script.removeprefix('watchItDecodeFile("').removesuffix('");\n')
    assert name == "model.js"
    assert len(weights) > Live.file.stat().st_size
    assert f'id="file-model">{weights}</script>' in whole
    assert len(light.encode()) < 400_000, "before a model is asked for"
    assert weights not in light
    assert Live().widget.file == Live.file.read_bytes()
