"""Run one of the project's commands: `python -m tools COMMAND [arguments]`. Without arguments, list them."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "for readers": {
        "lab": "open the notebooks in JupyterLab",
        "reset": "restore a notebook, and keep your version next to it",
    },
    "for teachers": {
        "collect": "list who solved which exercise, as CSV",
        "site": "make the page, slides and worksheets, into build/",
        "pdf": "print the series, a way through or a page; needs Chromium",
    },
    "to check": {
        "notebooks": "run notebooks again and store their outputs",
        "check": "check that stored notebooks are fit to commit",
        "sizes": "measure the notebooks' length; write the minutes",
        "words": "make notebooks/words.ipynb from the words in bold",
        "dates": "list prices, options and cards that were checked too long ago",
    },
    "to record": {
        "train": "train the shipped model, or a variant of it",
        "halve": "write the shipped model as float16, for the page",
        "diary": "record the diary that the page and the notebooks show",
        "training": "record when a head turns to the name in training",
        "ladder": "measure the ladder of notebook 13; needs an idle machine",
        "same_prompt": "record replies that change in a batch, for notebook 21",
        "published": "record the gallery's run of a published model",
    },
    "to publish": {
        "pictures": "draw the README's pictures; needs Chromium",
        "film": "make the film; needs Chromium and ffmpeg",
        "stamp": "write the repository's address and the version everywhere",
        "release": "test and tag the version of pyproject.toml",
    },
}


def command_list() -> str:
    """Return the usage message. It lists the commands by purpose, one per line."""
    groups = [
        [f"{purpose}:", *(f"  {name:<12} {help}" for name, help in commands.items())]
        for purpose, commands in COMMANDS.items()
    ]
    return "\n".join(["usage: python -m tools COMMAND [--help]", *("\n" + "\n".join(g) for g in groups)])


def main() -> None:
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(command_list())
    elif any(name in group for group in COMMANDS.values()):
        sys.argv = [f"python -m tools {name}", *arguments]
        importlib.import_module(f"tools.{name}").main()
    else:
        sys.exit(f"{name!r} is not a command\n\n{command_list()}")


if __name__ == "__main__":
    main()
