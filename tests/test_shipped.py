"""What must hold of the weights that come with the package."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from helpers import corpus
from helpers.model import evaluate, shipped
from helpers.model.cache import Cache, GrowingCache, WindowCache
from helpers.model.config import ModelConfig
from helpers.model.evaluate import held_out_diaries, signature_accuracy
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

SIXTEEN = partial(WindowCache, window=16)


class Scripted:
    """Says certain words, one after each pass of one token, whatever that is, and keeps what it was given."""

    config = shipped.CONFIG

    def __init__(self, words: str) -> None:
        self.ids = iter([shipped.VOCABULARY.index(word) for word in words.split()])
        self.given: list[list[int]] = []

    def __call__(self, tokens: torch.Tensor, cache: object, *, last_only: bool) -> torch.Tensor:
        self.given.append(tokens[0].tolist())
        word = next(self.ids) if tokens.shape[1] == 1 else 0
        return torch.nn.functional.one_hot(torch.tensor([[word]]), self.config.vocab_size).float()


DIARY = corpus.Diary("Mia", "Oslo", tuple("Mia writes from Oslo . Signed by Mia from Oslo . <eos>".split()))


def test_signature_accuracy_checks_name_and_city() -> None:
    sentences, made = ["Mia from Oslo", "Mia from Rome", "Mia is Oslo", "Noah from Oslo"], list[Cache]()
    tokenizer, model = Tokenizer.from_words(shipped.VOCABULARY), Scripted(" ".join(sentences))

    def make(config: ModelConfig) -> Cache:
        made.append(GrowingCache(config))
        return made[-1]

    assert signature_accuracy(model, tokenizer, [DIARY] * 4, make) == 0.25  # type: ignore[arg-type]
    assert len(made) == 4
    prompt, first = (tokenizer.encode(text) for text in (DIARY.prompt, sentences[0]))
    assert model.given[:4] == [prompt[:-1], prompt[-1:], first[:1], first[1:2]]  # the third is not run


@pytest.mark.parametrize("make", [GrowingCache, SIXTEEN])
def test_next_word_losses_through_a_cache(make: Any) -> None:
    """Though the diaries are cut into passes: each word counts once, in a short diary as in a long one."""
    model, tokenizer = shipped.load_shipped()
    diaries = held_out_diaries(3, seed=4)
    with torch.no_grad():
        texts = [torch.tensor([tokenizer.encode(diary.text)]) for diary in diaries]
        logits = torch.cat([model(text[:, :-1], make(model.config))[0] for text in texts])
    words = torch.cat([text[0, 1:] for text in texts])
    losses = torch.nn.functional.cross_entropy(logits, words, reduction="none")
    p_eos = logits.softmax(-1)[:, tokenizer.eos_id]
    got = evaluate.next_word_losses(model, tokenizer, diaries, make)
    torch.testing.assert_close(got, (losses, p_eos), atol=1e-5, rtol=1e-5)


def test_held_out_diaries_depend_on_seed() -> None:
    a, b, c = (held_out_diaries(3, seed, min_quiet_words=40) for seed in (1, 1, 2))
    assert len(a) == 3
    assert a == b != c
    assert all(corpus.is_held_out(diary.name, diary.city) for diary in a)
    assert not any({diary.name, diary.city} & set(diary.prompt.split()[-42:]) for diary in a)


@pytest.fixture(scope="module")
def loaded() -> tuple[Transformer, Tokenizer]:
    """The shipped model and its tokenizer."""
    return shipped.load_shipped()


def test_shipped_files_are_small(loaded: tuple[Transformer, Tokenizer]) -> None:
    files = [path for path in shipped.FOLDER.iterdir() if path.suffix in {".json", ".safetensors"}]
    assert {path.name for path in files} == {
        "config.json", "model.safetensors", "model.f16.safetensors", "tokenizer.json"
    }  # fmt: skip
    assert sum(path.stat().st_size for path in files) < 5_000_000
    model, tokenizer = loaded
    assert model.config == shipped.CONFIG
    assert tokenizer.vocabulary == {word: i for i, word in enumerate(corpus.vocabulary())}
    assert model.config.eos_ids == (tokenizer.eos_id,)
    assert model.config.max_seq_len == 2048


@pytest.mark.parametrize("variant", [name for name in shipped.VARIANTS if name != "gqa"])
def test_variants_differ_in_cache_size(variant: str) -> None:
    """Each in a small folder of its own; notebooks 15 and 23 show what they sign."""
    files = list(shipped.weights_folder(variant).iterdir())
    assert {path.name for path in files} == {"config.json", "model.safetensors"}
    assert sum(path.stat().st_size for path in files) < 4_000_000
    model, _ = shipped.load_shipped(variant)
    assert model.config == shipped.VARIANTS[variant]
    assert vars(shipped.CONFIG).items() - vars(model.config).items() <= {("n_kv_heads", 2)}


def test_shipped_model_answers_as_documented(loaded: tuple[Transformer, Tokenizer]) -> None:
    """The prompt of the series has four tokens and goes on as in the toy."""
    model, tokenizer = loaded
    weather = dict(evaluate.next_words(model, tokenizer, "Today weather is so", n=tokenizer.vocab_size))
    assert max(weather, key=weather.__getitem__) == "nice"
    assert weather["delicious"] < 0.01
    assert sum(weather.values()) == pytest.approx(1, abs=1e-5)
    soup = evaluate.next_words(model, tokenizer, "The soup is so")
    assert (len(soup), soup[0][0]) == (3, "delicious")
    assert soup[0][1] > soup[1][1] > soup[2][1]
    output_ids = evaluate.greedy_words(model, tokenizer, "Today weather is so", 3, GrowingCache(model.config))
    assert output_ids == ["nice", ".", "<eos>"]


def test_copy_distance() -> None:
    words = "Mia writes from Oslo . Mia swam . Signed by Mia from Oslo . <eos>"
    assert (
        evaluate.copy_distance(corpus.Diary("Mia", "Oslo", tuple(words.split()))) == 9
    )  # from "from" to Oslo
