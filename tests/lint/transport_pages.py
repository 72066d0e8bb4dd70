#!/usr/bin/env python3
"""Checks that docs/transports.md lists the calls of Endpoint and Transport: no more, no less, and as
required the ones that are."""
import re
import sys

from sources import read, table

PAGE = "docs/transports.md"
HEADERS = ("src/base/wait.h", "transports/endpoint.h", "transports/transport.h")


def virtuals(text, name):
    """(required, optional) names of the virtual functions of class `name` in `text`."""
    body = re.search(rf"\nclass {name}\b.*?\n}};", text, re.S).group()
    body = re.sub(r"//[^\n]*", "", body)
    required, optional = set(), set()
    for call, rest in re.findall(r"virtual [^;{]*?\b(\w+)\(([^;{]*)", body):
        (required if re.search(r"=\s*0\s*$", rest) else optional).add(call)
    return required, optional - {name}


def listed(page, heading):
    """Names in the first column of the table under `heading`."""
    rows = table(page, heading)
    return None if rows is None else {call for row in rows for call in re.findall(r"`(\w+)\(\)`", row[0])}


def problems(page, classes):
    for name, (required, optional) in classes.items():
        for kind, calls in (("must have", required), ("may have", optional)):
            heading = f"What {'an' if name[0] in 'AEIOU' else 'a'} `{name}` {kind}"
            found = listed(page, heading)
            if found is None:
                yield f"{PAGE}: there is no section \"{heading}\""
                continue
            for call in sorted(calls - found):
                yield f"{PAGE}: \"{heading}\" leaves out {call}(), which the header declares so"
            for call in sorted(found - calls):
                yield f"{PAGE}: \"{heading}\" lists {call}(), which the header does not declare so"


def main():
    wait, endpoint, transport = (read(path) for path in HEADERS)
    waiter = virtuals(wait, "Waiter")
    own = virtuals(transport, "Transport")
    classes = {"Endpoint": virtuals(endpoint, "Endpoint"),
               "Transport": (own[0] | waiter[0], own[1] | waiter[1])}
    found = list(problems(read(PAGE), classes))
    print("\n".join(found) or f"{PAGE} lists {sum(len(a | b) for a, b in classes.values())} calls")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
