"""The badges and first cells that launch notebooks on Colab and Binder.

The repository's address and the version are defined only in pyproject.toml; `stamp.py` writes these texts
wherever they are used. Colab gets the notebook and the helpers from the same git tag, which `release.py`
creates.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tools" / "data"
GITHUB = "https://github.com/"
FIRST = "notebooks/00_start_here.ipynb"

# A helpers.py of the reader's own has no `stepper`, and neither has another package named helpers.
BOOTSTRAP = """\
# On Colab only this notebook is there, so fetch its helpers. Elsewhere this cell changes nothing.
import importlib
import subprocess
import sys

try:
    import helpers.stepper
except ImportError:
    source = "git+{github}{repository}@{tag}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", source], check=True)
    importlib.invalidate_caches()
    sys.modules.pop("helpers", None)
    import helpers.stepper  # if this fails: rename your own helpers.py, which comes first, and restart"""


def parser(message: str | None) -> argparse.ArgumentParser:
    """Return a command's argument parser. Its help text is the docstring, with the same line breaks."""
    return argparse.ArgumentParser(description=message, formatter_class=argparse.RawDescriptionHelpFormatter)


def about(root: Path = ROOT) -> dict[str, Any]:
    """Return the table [project] of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def repository(root: Path = ROOT) -> str:
    """Return the repository as "OWNER/NAME"."""
    address: str = about(root)["urls"]["Repository"]
    return address.removeprefix(GITHUB)


def tag(root: Path = ROOT) -> str:
    """Return the git tag of this version."""
    return f"v{about(root)['version']}"


def bootstrap(root: Path = ROOT) -> str:
    """Return the source of a notebook's first code cell."""
    return BOOTSTRAP.format(github=GITHUB, repository=repository(root), tag=tag(root))


def colab(path: str, root: Path = ROOT) -> str:
    """Return the address on Colab of a notebook, given its path relative to the root."""
    return f"https://colab.research.google.com/github/{repository(root)}/blob/{tag(root)}/{path}"


def binder(path: str, root: Path = ROOT) -> str:
    """Return the address on Binder of a notebook, given its path relative to the root."""
    return f"https://mybinder.org/v2/gh/{repository(root)}/main?urlpath=lab/tree/{path}"


def page(root: Path = ROOT) -> str:
    """Return the address of the published page."""
    owner, name = repository(root).split("/")
    return f"https://{owner}.github.io/{name}/"


def badges(path: str, root: Path = ROOT) -> str:
    """Return Markdown links that launch a notebook, and a link to the glossary.

    The links are text, not pictures: a picture would be fetched whenever the notebook is opened, and would be
    missing offline.

    Args:
        path: the notebook's path relative to the root.
    """
    return f"run it in [Colab]({colab(path, root)}) or [Binder]({binder(path, root)}) · [words](words.ipynb)"


def readme_badges(root: Path = ROOT) -> str:
    """Return the README's badges (tests, Colab and Binder) as Markdown."""
    tests = f"{GITHUB}{repository(root)}/actions/workflows/test.yml"
    pictures = {
        "Tests": (f"{tests}/badge.svg", tests),
        "Open in Colab": ("https://colab.research.google.com/assets/colab-badge.svg", colab(FIRST, root)),
        "Open in Binder": ("https://mybinder.org/badge_logo.svg", binder(FIRST, root)),
    }
    return "\n".join(f"[![{name}]({image})]({target})" for name, (image, target) in pictures.items())
