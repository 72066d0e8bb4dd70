#!/usr/bin/env python3
"""Plants bugs into copies of sources: plant.py LIST ROOT TABLE DEPFILE writes a table of the bugs in the list for
C++, the files that the table depends on, and beside the table a folder "planted" with a copy of each file that the
list names, in which each bug can be switched on at run time. A bug whose old text is not in its file
exactly once is an error: the list must follow the sources."""
import pathlib
import re
import sys


class Bug:
    def __init__(self, number, name, what):
        self.number, self.name, self.what = number, name, what
        self.file, self.scenarios, self.seeds, self.old, self.new = None, [], None, [], []


def parse(text):
    """Returns the bugs of a list; planted_bugs.txt says how one is written."""
    bugs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, rest = line.partition(" ")
        if key == "bug":
            name, _, what = rest.partition(": ")
            if any(bug.name == name for bug in bugs):
                raise SystemExit(f"line {number}: there are two bugs named {name}")
            bugs.append(Bug(len(bugs) + 1, name, what))
        elif key == "in":
            bugs[-1].file = rest
        elif key == "found":  # found by SCENARIO... within SEEDS
            match = re.fullmatch(r"by (.+) within (\d+)", rest)
            bugs[-1].scenarios, bugs[-1].seeds = match[1].split(), int(match[2])
        elif key == "-":
            bugs[-1].old.append(rest)
        elif key == "+":
            bugs[-1].new.append(rest)
        else:
            raise SystemExit(f"line {number}: \"{line}\" is no line of a bug")
    for bug in bugs:
        if not (bug.file and bug.scenarios and bug.old):
            raise SystemExit(f"bug {bug.name} lacks a file, a scenario or the old text")
    return bugs


def find(text, bug):
    """Returns where in `text` the old text of a bug is; blanks may differ."""
    pattern = r"\s+".join(re.escape(word) for line in bug.old for word in line.split())
    found = [match.span() for match in re.finditer(pattern, text)]
    if len(found) != 1:
        raise SystemExit(f"bug {bug.name}: its old text is in {bug.file} {len(found)} times, not once:\n"
                         + "\n".join(bug.old))
    return found[0]


def switch(old, bugs):
    """Returns code that does what `old` does unless one of the bugs is on: statements, or an expression."""
    if bugs[0].old[-1].endswith((";", "}")):
        return "".join(f"if (::whorl::simulation::planted({bug.number})) {{ {' '.join(bug.new)} }} else "
                       for bug in bugs) + f"{{ {old} }}"
    return "(" + "".join(f"::whorl::simulation::planted({bug.number}) ? ({' '.join(bug.new)}) : "
                         for bug in bugs) + f"({old}))"


def switch_all(text, places):
    """Returns `text` with switches at `places`, the bugs by their spans; one span may be inside another."""
    spans = sorted(places, key=lambda span: (span[0], -span[1]))
    done, at = "", 0
    while spans:
        begin, end = spans[0]
        inner = [span for span in spans[1:] if span[0] < end]
        if any(span[1] > end for span in inner):
            raise SystemExit(f"the old texts of two bugs overlap: {text[begin:end]}")
        old = switch_all(text[begin:end], {(b - begin, e - begin): places[b, e] for b, e in inner})
        done, at = done + text[at:begin] + switch(old, places[begin, end]), end
        spans = spans[1 + len(inner):]
    return done + text[at:]


def plant(text, bugs):
    """Returns the text of a file with the switches of all its bugs."""
    places = {}
    for bug in bugs:
        places.setdefault(find(text, bug), []).append(bug)
    text = switch_all(text, places)
    include = '#include "planted_now.h"\n#include "simulation/planted.h"\n'
    once = "#pragma once\n"
    return text.replace(once, once + include, 1) if once in text else include + text


def main():
    bug_list, root, table, depfile = (pathlib.Path(argument) for argument in sys.argv[1:])
    bugs = parse(bug_list.read_text())
    files = sorted({bug.file for bug in bugs})
    for file in files:
        path = table.parent / "planted" / file
        planted = plant((root / file).read_text(), [bug for bug in bugs if bug.file == file])
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != planted:
            path.write_text(planted)
    table.write_text("".join(
        f'{{"{bug.name}", "{bug.what}", "{" ".join(bug.scenarios)}", {bug.seeds}}},\n' for bug in bugs))
    # All copies include this file, so that what includes them is compiled again.
    (table.parent / "planted_now.h").write_text("#pragma once\n")
    depfile.write_text(f"{table}: " + " ".join(str(root / file) for file in files) + "\n")


if __name__ == "__main__":
    main()
