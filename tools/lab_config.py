"""The settings of JupyterLab for `python -m tools lab`.

JupyterLab serves the whole repository. Git must see no change after a notebook was only opened and saved, so
a hook removes the version of Python that JupyterLab writes. The original notebooks are saved in `fresh/` as
read-only files.
"""

import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tools.reset import save_originals


def normalize_language_info(model: dict[str, Any], **_: Any) -> None:
    """Remove the version of Python from a notebook before it is saved. JupyterLab calls this hook."""
    if model["type"] == "notebook":
        model["content"]["metadata"]["language_info"] = {"name": "python"}


# JupyterLab reads this file twice, and the second time it warns that one hook replaces the other.
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.ServerApp.root_dir = str(Path(__file__).resolve().parents[1])
c.ContentsManager.pre_save_hook = normalize_language_info
with suppress(OSError):  # JupyterLab must start even if this folder is read-only
    save_originals()
