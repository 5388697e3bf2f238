"""The settings of JupyterLab for `python -m tools lab`.

JupyterLab serves the whole repository. Opening and saving a notebook must not change it for git, but
JupyterLab would write the version of Python into it. The original notebooks are saved in `fresh/` as
read-only files.
"""

import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tools.reset import keep


def keep_what_git_knows(model: dict[str, Any], **_: Any) -> None:
    """Before a notebook is saved, remove from it what depends on the machine that opened it."""
    if model["type"] == "notebook":
        model["content"]["metadata"]["language_info"] = {"name": "python"}


# JupyterLab reads this file twice, and the second time it warns that one hook replaces the other.
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.ServerApp.root_dir = str(Path(__file__).resolve().parents[1])
c.ContentsManager.pre_save_hook = keep_what_git_knows
with suppress(OSError):  # JupyterLab must start even if this folder is read-only
    keep()
