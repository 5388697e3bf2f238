"""The museum of bugs: exhibits by name, and `hunt`, which plants one by seed."""

from helpers.museum import exhibits
from helpers.museum.exhibit import EXHIBITS, Exhibit, Fingerprint, Place, fingerprint
from helpers.museum.hunt import hunt
from helpers.museum.runner import Prompt
