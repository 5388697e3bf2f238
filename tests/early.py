"""Loaded by pytest before every other plugin (`-p tests.early`): what makes each process start sooner."""

import sys

# jsonschema, which reads notebooks, would compile 39 grammars for addresses in many scripts: two seconds in
# every process, for a check that nobody asks for. It does without where it cannot be imported.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
