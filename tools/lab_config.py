"""How JupyterLab is started here, by `python -m tools lab`.

It serves the whole repository. A notebook that was only opened and saved stays as git knows it: JupyterLab
would write into it which Python has opened it. How the notebooks came is kept in `fresh/`, to be read only.
"""

import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tools.reset import keep


def keep_what_git_knows(model: dict[str, Any], **_: Any) -> None:
    """Leave out of a notebook that is to be saved what depends on who has opened it."""
    if model["type"] == "notebook":
        model["content"]["metadata"]["language_info"] = {"name": "python"}


# Its settings are read twice, and the second time it says that one hook replaces the other.
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.ServerApp.root_dir = str(Path(__file__).resolve().parents[1])
c.ContentsManager.pre_save_hook = keep_what_git_knows
with suppress(OSError):  # where this folder cannot be written Lab starts all the same
    keep()
