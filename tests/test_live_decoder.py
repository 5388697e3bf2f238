"""The decoder in the page: run by node, held to Python's on the same weights."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_bytes

from helpers import corpus
from helpers.model import shipped
from helpers.model.cache import GrowingCache
from helpers.model.generate import generate, next_token_logits
from helpers.model.load.safetensors import PREFIX
from helpers.model.load.weights import make_model_with_weights
from helpers.model.transformer import Transformer
from helpers.recording.model import record_model
from helpers.sampling import Sampling, next_probabilities
from helpers.tokenizer import Tokenizer
from helpers.trace import WEIGHT_SCALE, Trace, compare
from tests.machine import ROOT
from tests.tiny import tiny
from tools.halve import PATH, pack_model

torch.set_num_threads(1)

CLOSE = 1e-4  # of the largest logit: sums of 352 products in 64 bits against 32, over four layers
GREEDY = {"temperature": 0, "seed": 0}
WRITE = {"do": "write", "steps": 8, "cache": True, "noEos": False, "settings": GREEDY, "record": []}
WORDS = [f"word{i}" for i in range(19)]


def run_script(node: str, script: str, asked: Any, *arguments: Path) -> Any:
    """Give a script in tests/js what it asks for; return what it writes."""
    command = [node, str(ROOT / "tests/js" / script), *map(str, arguments)]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answers(node: str, file: Path, asks: list[dict[str, Any]], *ops: str) -> list[dict[str, Any]]:
    """Return what a page's Worker says to these behind `load`: all answers, or those of some kinds."""
    sentence = run_script(node, "converse.mjs", [{"id": n, **ask} for n, ask in enumerate(asks)], file)
    return [answer for answer in sentence if not ops or answer["op"] in ops]


def numbers(node: str, what: str, given: list[Any], file: Path | None = None) -> list[Any]:
    """Return what the page's decoder works out of these, see numbers.mjs."""
    result = run_script(node, "numbers.mjs", {"file": str(file), what: given})
    return result["logits" if what == "texts" else what]


def load_halved() -> tuple[Transformer, Tokenizer]:
    """Return the shipped model with the numbers of the page's file, in float32, and its tokenizer."""
    weights = {name.removeprefix(PREFIX): x.float() for name, x in load_bytes(PATH.read_bytes()).items()}
    return make_model_with_weights(shipped.CONFIG, weights), shipped.load_shipped()[1]


halved = pytest.fixture(scope="module")(load_halved)


@pytest.fixture(scope="module")
def texts(halved: tuple[Transformer, Tokenizer]) -> list[list[int]]:
    """Twenty texts of 200 tokens."""
    return [halved[1].encode(" ".join(words)) for words in islice(corpus.training_texts(5, 200), 20)]


def test_the_file_is_the_shipped_model_rounded() -> None:
    assert PATH.read_bytes() == pack_model(shipped.load_shipped()[0], list(shipped.VOCABULARY))
    stored = load_bytes(PATH.read_bytes())
    for name, weight in shipped.load_shipped()[0].state_dict().items():
        if name != "lm_head.weight":
            assert torch.equal(stored[PREFIX + name], weight.half()), name


# --- logits ---


@torch.no_grad()
def logits_of(model: Transformer, passes: list[Any]) -> np.ndarray:
    """Run each pass whole, with all that stands before it: no cache is held to a cache."""
    text: list[int] = []
    rows = []
    for given in passes:
        if isinstance(given, int):
            text = text[:given]
        else:
            text = text + given
            rows.append(model(torch.tensor([text]))[0, -len(given) :])
    return torch.cat(rows).numpy()


def check_logits(node: str, file: Path, model: Transformer, texts: list[Any]) -> list[np.ndarray]:
    """Hold the page's logits to Python's; return them."""
    stored = numbers(node, "texts", texts, file)
    message = [np.frombuffer(base64.b64decode(logits), np.float32) for logits in stored]
    for passes, logits in zip(texts, message, strict=True):
        wanted = logits_of(model, passes)
        np.testing.assert_allclose(
            logits.reshape(wanted.shape), wanted, atol=CLOSE * np.abs(wanted).max(), rtol=0
        )
    return message


def test_every_length_to_200_however_it_is_cut(
    node: str, halved: tuple[Transformer, Tokenizer], texts: list[list[int]]
) -> None:
    """A row does not depend on what runs with it, so that cuts are equal to the last bit."""
    text, other = texts[:2]
    chunks = [text[:7], text[7:70], text[70:71], text[71:]]
    one_by_one = [[token] for token in text]
    edits: list[Any] = [text[:120], 70, text[70:75], 71, other[71:90], 0, other[:30]]
    message = check_logits(node, PATH, halved[0], [one_by_one, [text], chunks, edits, [[i] for i in other]])
    assert np.array_equal(message[0], message[1])
    assert np.array_equal(message[0], message[2])


# --- words, and the record of how they came ---


@pytest.mark.parametrize("cache", [True, False])
def test_it_records_what_python_does(
    node: str, halved: tuple[Transformer, Tokenizer], texts: list[list[int]], cache: bool
) -> None:
    model, tokenizer = halved
    recorded = [(0, 0), (1, 3), (3, 1)]
    prompts = [text[:n] for n, text in zip((1, 4, 23, 200 if cache else 60), texts, strict=False)]
    write = WRITE | {"cache": cache, "record": recorded}
    asks = [write | {"tokens": prompt} for prompt in prompts]
    sentence = answers(node, PATH, [*asks, asks[0] | {"record": []}], "pass", "written")
    *written, unrecorded = [answer for answer in sentence if answer["op"] == "written"]
    assert (unrecorded["trace"], unrecorded["tokens"]) == (None, written[0]["tokens"])
    for n, (prompt, answer) in enumerate(zip(prompts, written, strict=True)):
        passes = [one for one in sentence if (one["op"], one["id"]) == ("pass", n)]
        assert [one["said"]["token"] for one in passes] == answer["tokens"]
        lengths = [len(prompt) + i for i in range(len(passes))]
        n_tokens = [len(prompt), *[1] * 7][: len(passes)] if cache else lengths
        cached = lengths if cache else [0] * len(passes)
        counts = [(one["tokensRun"], one["cached"]) for one in passes]
        assert counts == list(zip(n_tokens, cached, strict=True))
        assert answer["why"] == ("eos" if answer["tokens"][-1] == 0 else "steps")
        got = Trace.from_json(json.dumps(answer["trace"]))
        wanted = record_model(
            model,
            prompt,
            tokenizer,
            max_new_tokens=8,
            recorded=recorded,
            training=False,
            name="weather diaries",
        ).only_run("cached" if cache else "uncached")
        assert compare(wanted, got) == "equal"
        assert vars(got.model) == vars(wanted.model) | {"scale": pytest.approx(32**-0.5)}
        assert got.sequences == wanted.sequences
        assert got.weights.keys() == wanted.weights.keys()
        for mine, theirs in zip(got.runs[0].passes, wanted.runs[0].passes, strict=True):
            tops = [part.out[0].top for part in (mine.parts[0], theirs.parts[0])]
            for (word, _, p), (expected_word, _, expected_p) in zip(*tops, strict=True):
                assert (word, p) == (expected_word, pytest.approx(expected_p, abs=1e-4))
            mine.parts[0].out[0].top = theirs.parts[0].out[0].top
            assert mine == theirs


def test_weights_of_a_long_text_keep_their_sum(node: str, tmp_path: Path) -> None:
    """Of 655 tokens each weighs 100.05 of 65,535, of 870 75.3: rounded one by one they would make 0.996."""
    model = tiny(max_seq_len=900)
    with torch.no_grad():
        model.get_parameter("layers.0.self_attn.q_proj.weight").zero_()  # looks at all alike
    (tmp_path / "tiny").write_bytes(pack_model(model, WORDS))
    write = WRITE | {"tokens": [i % 19 for i in range(900)], "steps": 1, "record": [(0, 0)]}
    (answer,) = answers(node, tmp_path / "tiny", [write], "written")
    rows = Trace.from_json(json.dumps(answer["trace"])).weights
    assert len(rows) == 900
    assert max(abs(int(row.sum()) / WEIGHT_SCALE - 1) for row in rows.values()) < 0.0025


def test_full_and_too_long(node: str, tmp_path: Path) -> None:
    model = tiny()  # reads 40 tokens
    (tmp_path / "tiny").write_bytes(pack_model(model, WORDS))
    asks = [
        WRITE | {"tokens": [3] * n, "cache": cache, "steps": 50}
        for n in (30, 40, 41)
        for cache in (True, False)
    ]
    sentence = answers(node, tmp_path / "tiny", asks, "written", "failed")
    ends = [(one["why"], len(one["tokens"])) for one in sentence if one["op"] == "written"]
    assert ends == [("full", 11)] * 2 + [("full", 1)] * 2
    assert len(list(generate(model, [3] * 30, 50))) == 11
    message = [one["say"] for one in sentence if one["op"] == "failed"]
    assert len(message) == 2
    assert all("41 new tokens" in say and "expected at most 40" in say for say in message)


def test_without_eos_it_goes_on(node: str, halved: tuple[Transformer, Tokenizer]) -> None:
    prompt = halved[1].encode("Today weather is so")
    asks = [WRITE | {"tokens": prompt, "steps": 12, "noEos": no_eos} for no_eos in (False, True)]
    ends, on = answers(node, PATH, asks, "written")
    assert (ends["why"], ends["tokens"][-1]) == ("eos", 0)
    assert (on["why"], len(on["tokens"]), 0 in on["tokens"]) == ("steps", 12, False)
    assert on["tokens"][: len(ends["tokens"]) - 1] == ends["tokens"][:-1]


# --- draws ---


@pytest.mark.parametrize("temperature", [0.7, 1, 1.3, 1e-30])
def test_probabilities(node: str, temperature: float) -> None:
    drawn = [np.random.default_rng(0).normal(0, 3, 19), np.array([0.0] * 10 + [-1e30] * 9)]
    rows = [row.astype(np.float32).astype(float).tolist() for row in drawn]
    for row, got in zip(rows, numbers(node, "sampled", [[row, temperature] for row in rows]), strict=True):
        np.testing.assert_allclose(got, Sampling(temperature).probabilities(np.array(row)), atol=1e-12)


def mulberry32(seed: int) -> Iterator[float]:
    """The page's random numbers, as its author published them."""
    bits = 0xFFFFFFFF
    while True:
        seed = (seed + 0x6D2B79F5) & bits
        x = ((seed ^ seed >> 15) * (seed | 1)) & bits
        x ^= (x + ((x ^ x >> 7) * (x | 61) & bits)) & bits
        yield (x ^ x >> 14) / 2**32


def test_draws(node: str) -> None:
    assert next(mulberry32(1)) == pytest.approx(0.6270739405881613)
    p = [0.0, 0.25, 0.5, 0.0, 0.25, 0.0]
    seeds = (0, 1, 2**32 - 1)
    for seed, got in zip(seeds, numbers(node, "draws", [[seed, p, 400] for seed in seeds]), strict=True):
        wanted = np.searchsorted(np.cumsum(p), list(islice(mulberry32(seed), 400)), side="right")
        assert got == wanted.tolist()


@pytest.mark.parametrize("cache", [True, False])
def test_sampled_words(node: str, halved: tuple[Transformer, Tokenizer], cache: bool) -> None:
    prompt = halved[1].encode("Mia writes from Oslo .")
    settings = {"temperature": 3, "seed": 11}
    write = WRITE | {"tokens": prompt, "cache": cache, "steps": 20, "settings": settings, "record": [(0, 0)]}
    (answer,) = answers(node, PATH, [write], "written")
    sentence = answer["tokens"]
    with torch.no_grad():
        logits = halved[0](torch.tensor([prompt + sentence[:-1]]))[0, len(prompt) - 1 :].numpy()
    sums = [np.cumsum(next_probabilities(row, 3)) for row in logits]
    draws = islice(mulberry32(11), len(sentence))
    assert sentence == [np.searchsorted(row, u, side="right") for row, u in zip(sums, draws, strict=True)]
    for token, event in zip(sentence, answer["trace"]["runs"][0]["passes"], strict=True):
        (out,) = event["parts"][0]["out"]
        assert out["how"] == str(Sampling(3))
        assert halved[1].decode([token]) in [text for text, _, _ in out["top"]]


# --- a changed word ---


def test_a_changed_word(node: str, halved: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = halved
    text = "{} writes from Oslo . The soup is so delicious . Mia swam in the lake . Signed by"
    before, now = (tokenizer.encode(text.format(name)) for name in ("Mia", "Emma"))
    ask = {"do": "change", "before": before, "now": now, "steps": 3, "settings": GREEDY}
    sentence = answers(node, PATH, [ask, ask | {"now": before}], "changed")
    kept, fresh = (GrowingCache(model.config) for _ in range(2))
    for tokens, cache in ((before, kept), (now, fresh)):
        next_token_logits(model, torch.tensor([tokens]), cache)
    for name, a, b in (("k", kept.k, fresh.k), ("v", kept.v, fresh.v)):
        wanted = [(x - y).abs().amax((0, 1, 3)) / y.abs().max() for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(sentence[0][name], torch.stack(wanted), atol=1e-5)
        assert all(row > 0 for row in [sentence[0][name][0][0], *sentence[0][name][1]])
        assert not any(sentence[0][name][0][1:]), "in layer 1 the other rows are equal to the last bit"
        assert not any(map(any, sentence[1][name]))
    for name, cache in (("stale", kept), ("fresh", fresh)):
        cache.truncate(len(now) - 1)  # the last token runs again
        output = now[-1:]
        for _ in range(3):
            output.append(int(next_token_logits(model, torch.tensor([output[-1:]]), cache).argmax()))
        assert sentence[0][name] == {"tokens": output[1:], "texts": tokenizer.words(output[1:])}
    assert sentence[0]["stale"]["texts"] != sentence[0]["fresh"]["texts"] == ["Emma", "from", "Oslo"]


@pytest.mark.parametrize("text", ["Today weather.is\tso\nnice.", "<eos>Mia<eos>.", " ", "It\u2003is\u0085so"])
def test_text_is_cut_as_in_python(node: str, halved: tuple[Transformer, Tokenizer], text: str) -> None:
    (sentence,) = answers(node, PATH, [{"do": "tokenize", "text": text}], "tokens")
    assert sentence["tokens"] == halved[1].encode(text)
    assert sentence["texts"] == halved[1].words(sentence["tokens"])
