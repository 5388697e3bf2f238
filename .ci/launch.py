"""How a notebook is launched elsewhere: the text of the badges and of Colab's first cell.

The repository's address is read from pyproject.toml, where it stands once; `stamp.py` changes it there
and writes these texts again wherever they are used.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GITHUB = "https://github.com/"
FIRST = "notebooks/00_start_here.ipynb"

BOOTSTRAP = """\
# On Colab only this notebook is there, so fetch its helpers. Elsewhere this cell does nothing.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("helpers") is None:
    repository = "git+{github}{repository}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", repository], check=True)
    importlib.invalidate_caches()"""


def repository(root: Path = ROOT) -> str:
    """Return the repository as OWNER/NAME."""
    with (root / "pyproject.toml").open("rb") as file:
        address: str = tomllib.load(file)["project"]["urls"]["Repository"]
    return address.removeprefix(GITHUB)


def bootstrap(root: Path = ROOT) -> str:
    """Return the source of a notebook's first code cell."""
    return BOOTSTRAP.format(github=GITHUB, repository=repository(root))


def colab(path: str, root: Path = ROOT) -> str:
    """Return Colab's address of the notebook at this path below the root."""
    return f"https://colab.research.google.com/github/{repository(root)}/blob/main/{path}"


def binder(path: str, root: Path = ROOT) -> str:
    """Return Binder's address of the notebook at this path below the root."""
    return f"https://mybinder.org/v2/gh/{repository(root)}/main?urlpath=lab/tree/{path}"


def page(root: Path = ROOT) -> str:
    """Return the address of the published page."""
    owner, name = repository(root).split("/")
    return f"https://{owner}.github.io/{name}/"


def badges(path: str, root: Path = ROOT) -> str:
    """Return the Markdown that launches the notebook at this path (`notebooks/….ipynb`).

    Text, not pictures: a picture would be asked for from the network whenever the notebook is opened,
    and be missing offline.
    """
    return f"run it in [Colab]({colab(path, root)}) or [Binder]({binder(path, root)})"


def readme_badges(root: Path = ROOT) -> str:
    """Return the README's badges: tests, Colab and Binder."""
    tests = f"{GITHUB}{repository(root)}/actions/workflows/test.yml"
    pictures = {
        "Tests": (f"{tests}/badge.svg", tests),
        "Open in Colab": ("https://colab.research.google.com/assets/colab-badge.svg", colab(FIRST, root)),
        "Open in Binder": ("https://mybinder.org/badge_logo.svg", binder(FIRST, root)),
    }
    return "\n".join(f"[![{name}]({image})]({target})" for name, (image, target) in pictures.items())
