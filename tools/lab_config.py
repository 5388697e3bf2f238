"""The JupyterLab configuration that `python -m tools lab` uses.

JupyterLab's root folder is the repository. When a notebook is saved, JupyterLab adds the version of Python. A
hook removes it, so that git sees no change if the notebook was only opened and saved. When JupyterLab starts,
the original notebooks are saved to `fresh/` as read-only files.
"""

import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tools.reset import save_originals


def normalize_language_info(model: dict[str, Any], **_: Any) -> None:
    """Remove the version of Python from a notebook's metadata. JupyterLab calls this hook before it saves.

    Args:
        model: the file to be saved, as JupyterLab's contents manager represents it.
    """
    if model["type"] == "notebook":
        model["content"]["metadata"]["language_info"] = {"name": "python"}


# JupyterLab reads this file twice, and the second time it warns that one hook replaces the other.
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.ServerApp.root_dir = str(Path(__file__).resolve().parents[1])
c.ContentsManager.pre_save_hook = normalize_language_info
with suppress(OSError):  # JupyterLab must start even if this folder is read-only
    save_originals()
