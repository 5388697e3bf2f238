"""List the facts of helpers/cost/dated.json that were last checked too long ago, the oldest first.

    python -m tools dates                # older than 90 days
    python -m tools dates --days 30

For each fact, the list gives its age in days, the notebooks that state it in their prose, and the source to
check it against. A fact that was checked in a month without a day counts from the first day of that month.
After a check, set the value, `checked`, and the notebooks' prose, and run those notebooks again.
"""

from __future__ import annotations

from datetime import date

from helpers.cost.dated import DATED
from tools.launch import argument_parser


def facts_older_than(days: int, today: date) -> list[str]:
    """Return one line per fact whose last check is more than `days` days before `today`, the oldest first."""
    found = []
    for group, facts in DATED.items():
        for name, fact in facts.items():
            age = (today - fact.first_possible_day).days
            if age > days:
                pages = ", ".join(fact.pages) or "no prose"
                found.append((age, f"{age:>4} days  {group}: {name}  ({pages})\n           {fact.source}"))
    return [line for _, line in sorted(found, reverse=True)]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--days", type=int, default=90, help="the age from which a fact is listed")
    days = parser.parse_args().days
    old, n_facts = facts_older_than(days, date.today()), sum(map(len, DATED.values()))
    print("\n".join([*old, f"{len(old)} of {n_facts} facts were last checked more than {days} days ago"]))
