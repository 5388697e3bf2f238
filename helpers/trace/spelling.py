"""How a trace writes bytes that are part of a character: as `<0xF0>`, like the names of byte tokens."""

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
    """Return UTF-8 bytes as text. Bytes that do not form a complete character are written as `<0xF0>`."""
    return raw.decode("utf-8", "spelled")


def join_token_texts(texts: Iterable[str]) -> str:
    """Join the texts of tokens. Written-out bytes that together form a character are replaced by it."""
    return BYTE_TOKENS.sub(
        lambda run: text_of_bytes(bytes.fromhex(re.sub("<0x|>", "", run[0]))), "".join(texts)
    )
