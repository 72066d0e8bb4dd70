"""Source files of the repository for the lint tests, without comments if wanted, and tables of its pages."""
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}
TEXT_SUFFIXES = SUFFIXES | {".py", ".sh", ".md", ".build", ".txt", ".in"}


def tracked(suffixes, root=ROOT):
    """Returns paths, relative to the root, of the files with these suffixes; with git, tracked ones."""
    names = []
    if shutil.which("git"):
        listing = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"],
                                 capture_output=True, text=True)
        names = [name for name in listing.stdout.split("\0") if name]
    if not names:  # an unpacked archive
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()
                 and not path.relative_to(root).parts[0].startswith((".", "build", "subprojects"))]
    return sorted(pathlib.Path(name) for name in names
                  if pathlib.Path(name).suffix in suffixes and (root / name).exists())


def read(path, root=ROOT):
    return (root / path).read_text(encoding="utf-8", errors="replace")


def table(page, heading):
    """Cells of the rows of the tables under `heading` of a page; None where there is no such heading."""
    section = re.search(rf"\n#+ {re.escape(heading)}\n(.*?)(?=\n#|\Z)", page, re.S)
    return section and [row.split("|") for row in re.findall(r"^\|(.*)\|$", section.group(1), re.M)]


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank_comments(text):
    """Returns the text with comments and insides of string literals as spaces; lines stay."""

    def blank(match):
        token = match.group()
        if token[0] == '"':
            return '"' + " " * (len(token) - 2) + '"'
        if token[0] == "'":
            # A digit separator (65'536) is not a character literal.
            return token if match.start() and text[match.start() - 1].isalnum() else "' '"
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(blank, text)
