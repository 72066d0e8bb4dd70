#!/usr/bin/env python3
"""usage: doxygen.py ROOT: the public headers are documented without a gap, and the site of `./run docs` has links and
pictures that lead somewhere, and no commands of Doxygen in its text (doxygen warns of none of these).
Skips where doxygen is not installed."""
import html.parser
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse


class Page(html.parser.HTMLParser):
    """Page of the site: anchors, links to other files or anchors, and problems."""

    def __init__(self, file):
        super().__init__()
        self.file, self.anchors, self.links, self.problems = file, set(), set(), []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and not urllib.parse.urlsplit(value).scheme:
                self.links.add(value)

    def handle_data(self, data):
        for line in data.splitlines():
            if line.startswith("@section") or "@ref " in line:
                self.problems.append(f"{self.file.name}: doxygen has not understood \"{line}\"")


def problems_of(site):
    pages = {page.file: page for page in map(Page, sorted(site.glob("*.html")))}
    if not pages:
        yield "there is no page"
    for page in pages.values():
        yield from page.problems
        for link in sorted(page.links):
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = page.file.parent / name if name else page.file
            if not target.exists() or anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{page.file.name}: {link} leads nowhere"


root = pathlib.Path(sys.argv[1])
if shutil.which("doxygen") is None:
    print("doxygen is not installed (apt-get install doxygen)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    config = (root / "docs/Doxyfile").read_text(encoding="utf-8")
    config += f"\nOUTPUT_DIRECTORY = {folder}\n"
    run = subprocess.run(["doxygen", "-"], input=config, text=True, cwd=root, capture_output=True)
    problems = list(problems_of(pathlib.Path(folder) / "html"))
    print(run.stderr, *problems, sep="\n")
    sys.exit(1 if run.returncode or "warning:" in run.stderr or problems else 0)
