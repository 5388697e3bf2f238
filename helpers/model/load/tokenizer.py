"""Load a checkpoint's tokenizer and chat template, from its folder or from its GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from jinja2 import TemplateError
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from helpers.model.load.config import CONFIG_FILE, GENERATION_FILE, read_eos_ids
from helpers.model.load.files import CheckpointError, checkpoint_errors, read_json
from helpers.model.load.hub import find_checkpoint
from helpers.tokenizer import FILE, Tokenizer

if TYPE_CHECKING:
    from helpers.model.load.gguf import Gguf

WHOLE = (3, 4)  # types of tokens in a GGUF file that are never split: control tokens and user-defined tokens
LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
LIKE_LLAMA3 = (*LLAMA3, "smaug-bpe")  # the last is SmolLM3's, which adds no token at the beginning of a text
# How Llama 3 and Qwen2 split a text into words; they differ in how many digits stay together.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
WORDS += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def load_tokenizer(source: str | Path) -> Tokenizer:
    """Load a checkpoint's tokenizer, including the chat template.

    Args:
        source: as in `load`.

    Raises:
        CheckpointError: the tokenizer is missing, damaged, or of a type that is not supported.
    """
    path = find_checkpoint(source)
    with checkpoint_errors(path):
        if path.suffix != ".gguf":
            return tokenizer_from_folder(path)
        from helpers.model.load.gguf import Gguf

        return tokenizer_from_gguf(Gguf(path))


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """Load a tokenizer from a checkpoint's folder: tokenizer.json, special tokens, and chat template.

    The tokenizer's files are read by `transformers`. If they do not name the token that ends a text, it is
    taken from generation_config.json or config.json.
    """
    from transformers import PreTrainedTokenizerFast  # takes seconds, and few need it

    if not (folder / FILE).exists():
        raise CheckpointError(
            f"{folder} holds no {FILE}; expected one, as the `tokenizers` library writes it"
        )
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = Tokenizer(theirs.backend_tokenizer)
    tokenizer.bos, tokenizer.eos = theirs.bos_token, theirs.eos_token or eos_token_of(folder, tokenizer)
    tokenizer.chat_template = theirs.chat_template
    return tokenizer


def eos_token_of(folder: Path, tokenizer: Tokenizer) -> str | None:
    """Return the first token that ends a reply, according to the model's config files in the folder.

    Return None if no config file names one.
    """
    for path in (folder / GENERATION_FILE, folder / CONFIG_FILE):
        if path.exists() and (ids := read_eos_ids(read_json(path))):
            return tokenizer.library.id_to_token(ids[0])
    return None


def tokenizer_from_gguf(file: Gguf) -> Tokenizer:
    """Return the tokenizer described by the metadata of an open `Gguf` file.

    Raises:
        CheckpointError: the tokenizer is not a byte-level BPE, or its pre-tokenizer is not supported.
    """
    kind, cut = file.get("tokenizer.ggml.model"), file.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise CheckpointError(f"the tokenizer {kind!r} is not supported; expected 'gpt2': byte-level BPE")
    tokens = file.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.get("tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut in LIKE_LLAMA3))
    library.normalizer = normalizers.NFC() if cut == "qwen2" else None
    library.pre_tokenizer, library.decoder = pre_tokenizer_called(cut), decoders.ByteLevel()
    kinds = zip(tokens, file.get("tokenizer.ggml.token_type", []), strict=False)
    library.add_tokens([AddedToken(token, normalized=False) for token, kind in kinds if kind in WHOLE])
    ids = [file.get(f"tokenizer.ggml.{end}_token_id", None) for end in ("bos", "eos")]
    bos, eos = (None if number is None else tokens[number] for number in ids)
    first = bos if file.get("tokenizer.ggml.add_bos_token", cut in LLAMA3) else None
    last = eos if file.get("tokenizer.ggml.add_eos_token", False) else None
    if around := [(token, vocabulary[token]) for token in (first, last) if token]:
        single = [token for token in (first, "$A", last) if token]
        library.post_processor = processors.TemplateProcessing(single=single, special_tokens=around)
    tokenizer = Tokenizer(library)
    tokenizer.bos, tokenizer.eos = bos, eos
    tokenizer.chat_template = file.get("tokenizer.chat_template", None)
    return tokenizer


def pre_tokenizer_called(name: str) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer with this name in llama.cpp. Raise CheckpointError if it is not supported."""
    if name in ("smollm", "gpt-2"):
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if name == "smollm" else []
        return pre_tokenizers.Sequence([*digits, words])
    if name not in (*LIKE_LLAMA3, "qwen2"):
        known = "smollm, gpt-2, llama-bpe, smaug-bpe or qwen2"
        raise CheckpointError(f"the pre-tokenizer {name!r} is not supported; expected {known}")
    split = pre_tokenizers.Split(Regex(WORDS % (r"\p{N}" if name == "qwen2" else r"\p{N}{1,3}")), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[dict[str, str]]) -> str:
    """Return a chat as a single prompt to encode, up to the point at which the reply begins.

    The prompt is made by the tokenizer's chat template. This is a program by the author of the checkpoint,
    and `transformers` runs it in a sandbox.

    Args:
        tokenizer: a tokenizer with a chat template, from `load_tokenizer`.
        messages: messages of the chat, in order. Each is a dict with the keys "role" ("system", "user" or
            "assistant") and "content".

    Raises:
        CheckpointError: there is no chat template, or the template fails or rejects these messages.
    """
    from transformers import PreTrainedTokenizerFast  # takes seconds, and few need it

    if not tokenizer.chat_template:
        raise CheckpointError("the tokenizer has no chat template; expected that of a model trained to chat")
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.library, bos_token=tokenizer.bos, eos_token=tokenizer.eos
    )
    try:
        text: str = theirs.apply_chat_template(
            [*messages],
            chat_template=tokenizer.chat_template,
            tokenize=False,
            add_generation_prompt=True,
        )
    except TemplateError as error:
        raise CheckpointError(f"the chat template cannot be used: {error}") from error
    bos = tokenizer.bos or ""
    begins = tokenizer.encode("")[:1] == [tokenizer.library.token_to_id(bos)]
    return text.removeprefix(bos) if begins else text  # encode adds it
