"""The museum of bugs: exhibits, and fingerprints that show where two runs of the same tokens differ."""

from helpers.museum import exhibits
from helpers.museum.exhibit import EXHIBITS, Exhibit, Fingerprint, Location, fingerprint
from helpers.museum.runner import ExhibitPrompt
