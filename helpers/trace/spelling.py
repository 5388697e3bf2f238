"""How a trace writes bytes that are part of a character: `<0xF0>`, as tokenizers name byte tokens."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("spelled", _spelled)


def spell(raw: bytes) -> str:
    """Return bytes as text; bytes that are not a complete character in UTF-8 are written as `<0xF0>`."""
    return raw.decode("utf-8", "spelled")


def join(texts: Iterable[str]) -> str:
    """Join the texts of tokens; spelled bytes that together make a character are replaced by it."""
    return BYTES.sub(lambda run: spell(bytes.fromhex(re.sub("<0x|>", "", run[0]))), "".join(texts))
