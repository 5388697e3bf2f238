"""The sealed engines of A2: the output does not give the bug away; two suitable probes open each engine."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache
from typing import Any

import nbformat
import torch

from helpers.chapters.a2 import Probe, SealedEngine
from helpers.check.result import Result
from helpers.museum.engine import ReferenceServer
from tests.machine import ROOT

torch.set_num_threads(1)
CELLS = {
    cell.id: cell.source for cell in nbformat.read(ROOT / "notebooks/A2_museum.ipynb", as_version=4).cells
}
LETTER = "Jonas writes from Rome . Wednesday is snowy in Rome . Jonas swam in the lake . Signed"
LONGER = f"{LETTER[:-6]}Jonas saw a bird in the harbor . The soup is so delicious . Signed"
SAME = "Jonas writes from Rome . Wednesday is snowy in Rome . Jonas saw a bird in the harbor ."
STRANGER = "This is the diary of Carla from Seoul . Carla saw a fox in the station ."
CHANGES: list[tuple[str, Any]] = [  # what somebody may change who knows none of the causes
    ("text", LONGER),
    ("chunk", 6),
    ("pads", 5),
    *((who, text) for who in ("earlier_request", "concurrent_request") for text in (SAME, STRANGER)),
    ("adapter", True),
]
SEEDS = range(8)


def test_a_server_without_a_bug_answers_all_probes() -> None:
    rng = random.Random(0)
    for _ in range(25):
        changed = dict(rng.sample(CHANGES, 4))
        probe = Probe(LETTER)._replace(**changed)
        assert ReferenceServer.fingerprint(probe).first_difference is None, probe


def test_output_of_the_first_probes_does_not_name_causes(capsys: Any) -> None:
    outputs = set()
    for seed in SEEDS:
        names: dict[str, Any] = {"Probe": Probe, "SealedEngine": lambda _, seed=seed: SealedEngine(seed)}
        *before, last = CELLS["a2-first"].replace("seed=1", "0").splitlines()
        exec("\n".join(before), names)
        picture = eval(last, names)
        outputs.add((picture.alt, capsys.readouterr().out))
    assert len(outputs) <= 2, "the output tells engines apart"


def neighbours(a: Probe, b: Probe) -> bool:
    """Whether two probes differ in one thing."""
    return sum(x != y for x, y in zip(a, b, strict=True)) == 1


@cache
def hunted(seed: int) -> tuple[int, bool]:
    """Change one thing after another, then two; return how many probes that took, and whether it opened."""
    engine, rings = SealedEngine(seed), dict[Probe, bool]()
    pairs = [(a, b) for a, b in itertools.combinations(CHANGES, 2) if a[0] != b[0]]
    for changed in [(), *((change,) for change in CHANGES), *pairs]:
        probe = Probe(LETTER)._replace(**dict(changed))
        rings[probe] = engine._server.fingerprint(probe).first_difference is not None  # as its picture shows
        for other in [asked for asked in rings if rings[asked] != rings[probe] and neighbours(asked, probe)]:
            wrong, right = (probe, other) if rings[probe] else (other, probe)
            if not isinstance(engine.open(wrong, right), Result):
                return len(rings), True
    return len(rings), False


def test_a_plan_without_knowledge_opens_all_eight() -> None:
    probes, opened = zip(*map(hunted, SEEDS), strict=True)
    assert all(opened)
    *singles, a, b = sorted(probes)
    mean, most = f"{sum(probes) / 8:.1f} probes on average", f"six of them after {max(singles)} at most"
    sentence = f"after {mean}: {most}, and the two that need two changes after {a} and {b}."
    assert sentence in CELLS["a2-open-fold"]


def test_the_probes_in_the_fold_open_their_engines() -> None:
    names = {"Probe": Probe} | {"letter": LETTER, "same": SAME, "stranger": STRANGER}
    lines = re.findall(r"^\| (\d) \| `(.*?)` \| `(.*?)` \|$", CELLS["a2-open-fold"], re.MULTILINE)
    assert [int(seed) for seed, _, _ in lines] == [*SEEDS[1:]]
    for seed, wrong, right in lines:
        shown = SealedEngine(int(seed)).open(eval(wrong, dict(names)), eval(right, dict(names)))
        assert "Open, after 2 probes" in str(getattr(shown, "data", shown))


def test_unsuitable_probes_do_not_open_an_engine() -> None:
    engine, plain, cached = (
        SealedEngine(3),
        Probe(LETTER),
        Probe(LETTER, earlier_request=SAME),
    )  # a mask at the wrong corner
    for wrong, right, reason in [
        (..., ..., "Not solved yet"),
        (Probe(LETTER, chunk=6, pads=5), plain, "differ in 2 things"),
        (plain, Probe(LETTER, chunk=6), "right on `failing_probe`"),
        (Probe(LETTER, chunk=6), Probe(LETTER, chunk=9), "wrong on `passing_probe`"),
        (cached, plain, "2 of the eight engines"),
    ]:
        assert reason in repr(engine.open(wrong, right))
