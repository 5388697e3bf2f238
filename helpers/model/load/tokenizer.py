"""Tokenizers and chat templates of checkpoints: those of a folder, and those in a GGUF file's metadata."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from helpers.model.load.files import CheckpointError, check_file, read_json, reading
from helpers.model.load.hub import find
from helpers.tokenizer import Tokenizer

SETTINGS, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
SPECIAL, OWN = 3, 4  # kinds of token in a GGUF file that are never cut: control tokens, and a user's
LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
# How Llama 3 and Qwen2 cut a text into words; they differ in how many digits stay together.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
WORDS += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def load_tokenizer(source: str | Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint, its chat template with it; the source is as in `load`.

    Raises:
        CheckpointError: it is missing, damaged or of a kind that is not supported, by name.
    """
    path = find(source)
    with reading(path):
        if path.suffix != ".gguf":
            return from_folder(path)
        from helpers.model.load.gguf import opened

        return from_gguf(opened(path))


def from_folder(folder: Path) -> Tokenizer:
    """Read tokenizer.json, and what stands beside it about beginnings, ends and chats."""
    tokenizer = Tokenizer.load(folder)
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    for name in ("bos", "eos"):
        token = settings.get(f"{name}_token")
        if token is not None:
            setattr(tokenizer, name, token["content"] if isinstance(token, dict) else token)
    tokenizer.chat_template = settings.get("chat_template")
    if (folder / TEMPLATE).exists():
        tokenizer.chat_template = check_file(folder / TEMPLATE).read_text(encoding="utf-8")
    return tokenizer


def from_gguf(file: Any) -> Tokenizer:
    """Make the tokenizer that the metadata of an open `Gguf` file describe: byte-level BPE, no other kind."""
    kind, cut = file.get("tokenizer.ggml.model"), file.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise CheckpointError(f"the tokenizer {kind!r} is not supported; expected 'gpt2': byte-level BPE")
    tokens = file.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.get("tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut in LLAMA3))
    library.normalizer = normalizers.NFC() if cut == "qwen2" else None
    library.pre_tokenizer, library.decoder = cutter(cut), decoders.ByteLevel()
    kinds = dict(zip(tokens, file.get("tokenizer.ggml.token_type", []), strict=False))
    library.add_special_tokens([AddedToken(x, normalized=False) for x in tokens if kinds.get(x) == SPECIAL])
    library.add_tokens([AddedToken(x, normalized=False) for x in tokens if kinds.get(x) == OWN])
    bos, eos = (named(file, tokens, end) for end in ("bos", "eos"))
    first = bos if file.get("tokenizer.ggml.add_bos_token", cut in LLAMA3) else None
    last = eos if file.get("tokenizer.ggml.add_eos_token", False) else None
    if around := [(token, vocabulary[token]) for token in (first, last) if token]:
        single = [token for token in (first, "$A", last) if token]
        library.post_processor = processors.TemplateProcessing(single=single, special_tokens=around)
    tokenizer = Tokenizer(library)
    tokenizer.bos, tokenizer.eos = bos, eos
    tokenizer.chat_template = file.get("tokenizer.chat_template", None)
    return tokenizer


def named(file: Any, tokens: Sequence[str], end: str) -> str | None:
    """Return the token that begins or ends a text; None where the file names none."""
    number = file.get(f"tokenizer.ggml.{end}_token_id", None)
    if number is not None and number >= len(tokens):
        raise CheckpointError(f"{end}_token_id is {number}; expected 0 to {len(tokens) - 1}")
    return None if number is None else tokens[number]


def cutter(kind: str) -> pre_tokenizers.PreTokenizer:
    """Return what cuts a text before pieces are looked up, by llama.cpp's name for it."""
    if kind in ("smollm", "gpt-2"):
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if kind == "smollm" else []
        return pre_tokenizers.Sequence([*digits, words])
    if kind not in (*LLAMA3, "qwen2"):
        raise CheckpointError(
            f"the pre-tokenizer {kind!r} is not supported; expected smollm, gpt-2, llama-bpe or qwen2"
        )
    split = pre_tokenizers.Split(Regex(WORDS % (r"\p{N}" if kind == "qwen2" else r"\p{N}{1,3}")), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[dict[str, str]]) -> str:
    """Return the text to encode for a chat, up to where the reply begins.

    Args:
        tokenizer: one of `load_tokenizer`, with a chat template.
        messages: each with a role (system, user or assistant) and its content.

    Raises:
        CheckpointError: there is no template, or it refuses these messages.

    Templates are programs, written by whoever made the file: they run in a sandbox.
    """
    if not tokenizer.chat_template:
        raise CheckpointError("the tokenizer has no chat template; expected that of a model trained to chat")
    try:
        text = template(tokenizer.chat_template).render(
            messages=messages,
            add_generation_prompt=True,
            tools=None,
            bos_token=tokenizer.bos or "",
            eos_token=tokenizer.eos or "",
        )
    except (TemplateError, TypeError) as error:
        raise CheckpointError(f"the chat template cannot be used: {error}") from None
    begins = tokenizer.bos is not None and tokenizer.encode("") != []
    return text.removeprefix(tokenizer.bos) if begins and tokenizer.bos else text  # encode adds it


def template(text: str) -> Any:
    """Compile a template, with the functions that `transformers` gives to one."""

    def refuse(told: str) -> None:
        raise TemplateError(told)

    def tojson(value: Any, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=False, **how)

    extensions = ["jinja2.ext.loopcontrols"]
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": refuse, "strftime_now": datetime.datetime.now().strftime}
    return made.from_string(text)
