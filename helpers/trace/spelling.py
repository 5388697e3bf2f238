"""Convert UTF-8 bytes to the text that a trace stores.

A token may end in the middle of a character. The bytes of such an incomplete character are written in
hexadecimal, such as `<0xF0>`, in the same way as tokenizers name their byte tokens.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

BYTE_TOKENS = re.compile("(?:<0x[0-9A-F]{2}>)+")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("spelled", _spelled)


def text_of_bytes(raw: bytes) -> str:
    """Decode UTF-8 bytes. Each byte that is not part of a complete character is written like `<0xF0>`."""
    return raw.decode("utf-8", "spelled")


def join_token_texts(texts: Iterable[str]) -> str:
    """Join the texts of tokens.

    Consecutive bytes that are written like `<0xF0>` and together form a character are replaced by that
    character.
    """
    return BYTE_TOKENS.sub(
        lambda run: text_of_bytes(bytes.fromhex(re.sub("<0x|>", "", run[0]))), "".join(texts)
    )
