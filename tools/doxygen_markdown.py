#!/usr/bin/env python3
"""usage: doxygen_markdown.py FILE.md: prints a page as Doxygen wants it.

The pages are written for those who read them in a repository: links name files and headings in GitHub's manner.
Doxygen knows headings by ids that are unique in the whole site, and takes every README.md for the main page.
docs/Doxyfile names this filter."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAIN = ROOT / "README.md"
PAGES = {ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
PAGES.update((ROOT / "docs").glob("*.md"), (ROOT / "docs/decisions").glob("*.md"),
             (ROOT / "docs/results").glob("*.md"))
HEADING = re.compile(r"^(#{1,4}) +(.*?) *$")
HASH = re.compile(r"(?<=[ |])#(?=[a-z])")  # Doxygen reads a link to a symbol
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^()\s]+)\)")  # the text may go on in the next line
CODE = re.compile(r"(`+)([^`]+)\1")
BOLD_CODE = re.compile(r"\*\*(`[^*]*)\*\*")  # Doxygen reads no ` after **


def slug(heading):
    """Returns the anchor that GitHub gives a heading."""
    words = re.sub(r"[^\w\- ]", "", LINK.sub(r"\2", heading).lower())
    return words.replace(" ", "-")


def page_id(page):
    """Returns the id of a page of the site."""
    name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-").replace(".", "-")
    return "page-" + name.lower()


def heading_id(page, anchor):
    """Returns the id of a heading, which other pages may have, too."""
    return page_id(page) + "--" + anchor


def link(page, match):
    """Returns a link to a page or heading by its id, one to the site of others as it is, and one to another file
    of the repository as the file's name, because the site does not have the file."""
    image, text, target = match.groups()
    text = " ".join(text.split())  # Doxygen wants it in one line
    if re.match(r"[a-z]+:", target):
        return f"{image}[{text}]({target})"
    if image:
        return f"![{text}]({pathlib.Path(target).name})"  # IMAGE_PATH of docs/Doxyfile names the folders
    name, _, anchor = target.partition("#")
    other = pathlib.Path(os.path.normpath(page.parent / name)) if name else page
    if other in PAGES:
        if anchor:
            return f"[{text}](#{heading_id(other, anchor)})"
        return f"[{text}](#{'index' if other == MAIN else page_id(other)})"
    shown = other.relative_to(ROOT) if other.is_relative_to(ROOT) else pathlib.Path(name)
    if other.suffix in (".h", ".hpp"):
        return f"[{text}](@ref {shown.name})"
    plain = text.strip("`")
    return f"`{shown}`" if plain in (shown.as_posix(), shown.name, name) else f"{text} (`{shown}`)"


def code(match):
    """Returns code between two marks, because Doxygen takes a ' after one for the end."""
    return f"``{match.group(2)}``" if "'" in match.group(2) else match.group(0)


def convert(page, lines):
    fenced = False
    level = 0  # of the last heading
    seen = {}  # headings by anchor
    prose = []  # lines since the last heading or fence

    def converted_prose():
        text = BOLD_CODE.sub(r"<b>\1</b>", CODE.sub(code, HASH.sub(r"\#", "\n".join(prose))))
        lines = LINK.sub(lambda match: link(page, match), text).split("\n") if prose else []
        prose.clear()
        return lines

    for line in lines:
        heading = None if fenced else HEADING.match(line)
        fence = line.lstrip().startswith("```")
        if not fenced and not heading and not fence:
            prose.append(line)
            continue
        yield from converted_prose()
        if fence:
            fenced = not fenced
        elif heading:
            marks, words = heading.groups()
            anchor = slug(words)
            count = seen[anchor] = seen.get(anchor, -1) + 1
            own = heading_id(page, anchor + f"-{count}" * (count > 0)) if level else page_id(page)
            plain = LINK.sub(r"\2", words).replace("`", "")
            main = level == 0 and page == MAIN
            level = min(len(marks), level + 1)  # Doxygen wants no level left out
            line = "#" * level + f" {plain}" + ("" if main else f" {{#{own}}}")
        yield line
    yield from converted_prose()


if __name__ == "__main__":
    source = pathlib.Path(sys.argv[1]).resolve()
    for converted in convert(source, source.read_text(encoding="utf-8").splitlines()):
        print(converted)
