#!/usr/bin/env python3
"""Checks that the errors which docs/troubleshooting.md quotes are those of the sources."""
import re
import sys

from sources import read, tracked

PAGE = "docs/troubleshooting.md"


def texts(files):
    """String literals of sources, with adjacent literals joined and fields of formats as `…`."""
    joined = "\n".join(re.sub(r'"\s*\n\s*"', "", read(path)) for path in files)
    return re.sub(r"\{[^{}\s\";]*\}", "…", joined)


def quotes(page):
    """Parts of quoted errors between the places of names and numbers."""
    for line in re.findall(r"^> (.*)$", page, re.M):
        yield line, [part.strip() for part in line.split("…") if len(part.strip()) > 3]


def main():
    files = [path for path in tracked({".cc", ".h"}) if path.parts[0] in ("src", "transports")]
    known = texts(files)
    bad = 0
    count = 0
    for line, parts in quotes(read(PAGE)):
        count += 1
        for part in parts:
            if part not in known:
                print(f"{PAGE}: no source says \"{part}\", which is quoted in \"{line}\"")
                bad += 1
    print(f"{count} quoted errors, {bad} problems")
    return 1 if bad or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
