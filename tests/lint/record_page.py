#!/usr/bin/env python3
"""Checks that docs/monitoring.md lists the fields of the flight recorder's JSON, and no others."""
import re
import sys

from sources import read, table

PAGE = "docs/monitoring.md"
HEADING = "The flight recorder"
SOURCE = "src/monitor/json.cc"


def problems(page, source):
    rows = table(page, HEADING)
    if not rows:
        yield f"{PAGE}: there is no table under \"{HEADING}\""
        return
    fields = set(re.findall(r'[{[]"(\w+)"(?:, |\])', source))
    named = {word for row in rows for cell in row for word in re.findall(r"`([\w-]+)`", cell)}
    for field in sorted(fields - named):
        yield f"{PAGE}: \"{HEADING}\" leaves out `{field}`, which {SOURCE} writes"
    for word in sorted(named - set(re.findall(r'"([\w-]+)"', source))):
        yield f"{PAGE}: \"{HEADING}\" has `{word}`, which {SOURCE} does not write"


def main():
    found = list(problems(read(PAGE), read(SOURCE)))
    print("\n".join(found) or f"{PAGE} lists the fields that {SOURCE} writes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
