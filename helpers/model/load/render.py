"""Fill in a chat template in a separate process, because a template is a program by the author of the file.

Jinja's sandbox prevents access to files, but not endless loops or texts that grow without limit. So the
process may run only for a few seconds, and on Linux use only 512 MiB of memory. `chat_prompt` runs this file
as a script, which does not import PyTorch.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS, MEMORY = 5.0, 2**29  # limits: elapsed time, and bytes of memory


class Generation(Extension):
    """An extension of Jinja for the tag `{% generation %}`, which marks an assistant's reply for training.

    The content of the tag is rendered as if the tag were not there.
    """

    tags = {"generation"}  # noqa: RUF012 - as in Jinja's class

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the syntax tree of the template between the tag and its end tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def render(template: str, variables: dict[str, Any]) -> str:
    """Return the text of a template, with the functions that `transformers` provides to templates.

    Args:
        template: the template.
        variables: values of the template's variables, by name.
    """

    def refuse(message: str) -> None:
        raise TemplateError(message)

    extensions = ["jinja2.ext.loopcontrols", Generation]
    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    result.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    result.globals |= {"raise_exception": refuse, "strftime_now": datetime.datetime.now().strftime}
    return result.from_string(template).render(variables)


def main() -> None:
    """Read a template, its variables and a time limit from standard input; write the text to standard output.

    The input is a JSON list of these three; the time limit is in seconds.
    """
    template, variables, seconds = json.load(sys.stdin)
    # A watchdog outside the interpreter, which a single long power or product would keep busy.
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.open(os.devnull, os.O_WRONLY))
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.stdout.buffer.write(render(template, variables).encode())


if __name__ == "__main__":
    main()
