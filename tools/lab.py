"""Open the notebooks in JupyterLab. Arguments are passed on to JupyterLab.

python -m tools lab                              # notebooks/00_start_here.ipynb
python -m tools lab notebooks/03_decode.ipynb
"""

from __future__ import annotations

import sys

from tools.launch import FIRST, ROOT


def jupyterlab_arguments(arguments: list[str]) -> list[str]:
    """Prepend this project's settings to the arguments. Without arguments, open the first notebook."""
    return [f"--config={ROOT / 'tools' / 'lab_config.py'}", *(arguments or [str(ROOT / FIRST)])]


def main() -> None:
    from jupyterlab.labapp import LabApp  # takes a second

    LabApp.launch_instance(jupyterlab_arguments(sys.argv[1:]))
