"""Restore the original version of a notebook, given the beginning of its name: `python -m tools reset 03`.

If you changed the notebook, your version is renamed: the date and time are added to its file name. The
original notebooks are in `fresh/`, and can also be opened there in JupyterLab. They are those of the last git
commit or, without git, those that existed when `python -m tools lab` was first run.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime
from pathlib import Path

from tools.launch import GITHUB, ROOT, argument_parser, repository_name, version_tag


def save_originals(root: Path = ROOT, or_current: bool = True) -> None:
    """Save the original notebooks, which are those of git's HEAD, to `fresh/` as read-only files.

    Notebooks that are already in `fresh/` are replaced. Without git, they are kept.

    Args:
        root: the root of the repository.
        or_current: whether to save the current notebooks if HEAD cannot be read and `fresh/` does not exist.
    """
    fresh, known = root / "fresh", b""
    if (root / ".git").exists() and (git := shutil.which("git")):
        command = [git, "archive", "--format=zip", "HEAD:notebooks"]
        known = subprocess.run(command, cwd=root, capture_output=True).stdout
    if not known and (fresh.exists() or not or_current):
        return
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o644)  # Windows does not delete read-only files
        path.unlink()
    if known:
        zipfile.ZipFile(io.BytesIO(known)).extractall(fresh)
    else:
        shutil.copytree(root / "notebooks", fresh, ignore=shutil.ignore_patterns(".*", "solved.txt"))
    for path in fresh.glob("*.ipynb"):
        path.chmod(0o444)


def restore_notebooks(beginning: str, root: Path = ROOT) -> list[str]:
    """Restore the notebooks whose file names begin with `beginning`, and return one message per notebook.

    A notebook that the reader changed is renamed first. Its new name is in the message.

    Raises:
        FileNotFoundError: no original notebook has such a name, or there are no original notebooks.
    """
    save_originals(root, or_current=False)
    kept, done = sorted(root.glob("fresh/*.ipynb")), []
    if not kept:
        raise FileNotFoundError(
            "no original is kept: git has none here, and `python -m tools lab` was never run. "
            f"Download it from {GITHUB}{repository_name()}/tree/{version_tag()}/notebooks"
        )
    for path in (path for path in kept if path.name.startswith(beginning)):
        here = root / "notebooks" / path.name
        done.append(f"{path.name} is as it came.")
        if here.exists() and here.read_bytes() != path.read_bytes():
            yours = here.with_stem(f"{here.stem}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
            here.rename(yours)
            done[-1] += f" Yours is {yours.name}; in Lab, close the page and open it again."
        shutil.copyfile(path, here)
    if not done:
        raise FileNotFoundError(
            f"no name begins with {beginning!r}; there are: {[path.stem for path in kept]}"
        )
    return done


def main() -> None:
    arguments = argument_parser(__doc__)
    arguments.add_argument("name", help="the beginning of the notebook's file name")
    try:
        print("\n".join(restore_notebooks(arguments.parse_args().name)))
    except FileNotFoundError as error:
        sys.exit(str(error))
