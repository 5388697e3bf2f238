"""Find a checkpoint: a folder, a GGUF file, or one on the Hugging Face Hub, which is first downloaded."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.model.load.config import CONFIG_FILE, GENERATION_FILE
from helpers.model.load.files import CheckpointError
from helpers.model.load.safetensors import INDEX, WEIGHTS

FETCHED = [CONFIG_FILE, GENERATION_FILE, WEIGHTS, INDEX, "model-*.safetensors"]
FETCHED += ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
TIMEOUT = 5.0  # seconds to wait for the first response of the Hub


def find_checkpoint(source: str | Path) -> Path:
    """Return the path of a checkpoint's folder or GGUF file. If `source` is a name on the Hub, download it.

    Args:
        source: as in `load`. If a folder has no config.json and exactly one .gguf file, the path of that file
            is returned.

    Raises:
        CheckpointError: the folder or the name does not exist, or the checkpoint cannot be downloaded.
    """
    path = Path(source)
    if path.is_dir():
        files = [*path.glob("*.gguf")]
        return files[0] if len(files) == 1 and not (path / CONFIG_FILE).exists() else path
    if path.suffix == ".gguf":
        return path
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(source)):
        raise CheckpointError(
            f"there is no folder {str(source)!r}; expected one, a .gguf file, or a Hub name: owner/name"
        )
    return download_checkpoint(str(source))


def download_checkpoint(name: str) -> Path:
    """Download a checkpoint from the Hub, showing progress bars; return its folder in the Hub's cache.

    Files that are already in the cache are not downloaded again. Without a network, only the Hub's cache is
    used.

    Args:
        name: name on the Hub, owner/name.

    Raises:
        CheckpointError: the name does not exist, its owner requires you to accept terms first, or the Hub
            cannot be reached and the checkpoint is not in the cache.
    """
    from huggingface_hub import HfApi, errors, snapshot_download

    offline: Exception | None = None
    unknown = (errors.RepositoryNotFoundError, errors.HFValidationError)
    try:
        try:
            HfApi().model_info(name, timeout=TIMEOUT)  # snapshot_download itself would wait for minutes
        except unknown:
            raise
        except Exception as error:
            offline = error
        return Path(snapshot_download(name, allow_patterns=FETCHED, local_files_only=offline is not None))
    except errors.GatedRepoError:
        why = "its owner asks you to accept terms first: do so on its page, then log in with `hf auth login`"
    except unknown:
        why = "the Hub knows no such name, or it is private: look for a slip in it"
    except Exception as error:  # whatever the transport raises where there is no network
        message = (str(offline or error).strip() or type(error).__name__).splitlines()[0]
        why = f"the Hub could not be read ({message}): check the network, or pass a folder"
    raise CheckpointError(f"{name!r} is no folder here, and could not be downloaded: {why}")
