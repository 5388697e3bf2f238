"""Open the notebooks in JupyterLab; arguments go to JupyterLab.

python -m tools lab                              # notebooks/00_start_here.ipynb
python -m tools lab notebooks/03_decode.ipynb
"""

from __future__ import annotations

import subprocess
import sys

from tools.launch import FIRST, ROOT


def main() -> None:
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return
    command = [sys.executable, "-m", "jupyterlab", f"--config={ROOT / 'tools' / 'lab_config.py'}"]
    try:
        sys.exit(subprocess.run([*command, *(sys.argv[1:] or [str(ROOT / FIRST)])], cwd=ROOT).returncode)
    except KeyboardInterrupt:  # JupyterLab has asked whether to stop, and stopped
        sys.exit(0)
