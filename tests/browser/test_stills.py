"""The stills of live views: each has the words that its view says today."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser

from helpers.stepper.still import FOLDER, Still
from tools import stills

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_still_has_the_words_of_its_view(name: str, browser: Browser) -> None:
    """Where this fails: python -m tools notebooks takes it again."""
    still = Still.load(name)
    assert still is not None
    assert stills.still_name(still.data, still.options, stills.view_file(still.options)) == name
    today = stills.take_still(browser, still.data, still.options, with_picture=False)
    assert (today.alt, today.words) == (still.alt, still.words)
    assert json.dumps(today.seen) == json.dumps(still.seen) or still.options["view"] == "live"  # milliseconds
