#!/usr/bin/env python3
"""Rule about doc comments (`///` above a declaration, `///<` behind it): the comment of a function
begins with a verb in the third person or with "Whether", that of a type, field, constant or
enumerator with a noun; none begins with a preposition, a conjunction or a pronoun, and no later
sentence begins with a pronoun, whose noun would be in another sentence. Only first words are checked."""
import re
import sys

from sources import SUFFIXES, read, tracked

CHECKED = ("src/", "include/", "algorithms/", "topology/", "transports/", "bindings/", "perf/",
           "tests/support")
RULE = ("the comment of a function begins with a verb (\"Returns\"), of anything else with a noun; a pronoun "
        "has its noun in the same sentence")
# Words that leave the reader to look for the thing that a comment is about.
RIDDLES = set("""
    of whose whom who by that those this these which what why how it its they them their he his
    to from with without under before after instead if when where while as for in on at into onto
    over between among through within against per until since because unless though although than
    then there here so such also likewise and or nor but was were be been had
    can could may might must shall should will would not see""".split())
PRONOUN = re.compile(r"(?<=[.!?] )(It|They|Its|Their|Them|That|Those)\b(?![.:`(])")
ONE = re.compile(r"(?:(?:the|an?|no)\s+)?(?:one|ones|other|others)\b\s*(?:of|that|which|whose|who|by|for|"
                 r"from|to|with|without|in|at|on|as|is|are|has|may|[,.;:]|$)", re.I)
# Words with an s that begin comments and are no verbs.
NO_VERBS = set("""
    less plus thus access address process progress class status always perhaps bytes ranks messages
    operations kernels sizes functions threads devices times milliseconds nanoseconds seconds
    microseconds bits elements peers parameters arguments operands indices options words addresses
    endpoints streams descriptors chunks""".split())
# Verbs that are hardly ever nouns.
VERBS = set("""
    adds allocates becomes begins belongs carries chooses collects computes connects contains decides
    declares describes does finds frees gets gives has holds is keeps knows lets makes passes provides puts
    returns says serves takes tells throws tries waits""".split())
NO_SENTENCE = ("@", "\\", "```", "|")

COMMENT = re.compile(r"\s*///(?!<)(.*)")
TRAILING = re.compile(r"^(.*\S)\s*///<\s*(.*)")


def kind(declaration):
    """Returns "function", "other", or "any" for what may be either, of the beginning of a declaration."""
    text = re.sub(r"//.*", "", declaration)
    text = re.sub(r"operator\s*(?:\(\)|[^\w\s(]+)", "operator_", text)
    text = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^)]*\)|\bexplicit\s*\([^)]*\)", " ", text)
    text = re.sub(r"\b(?:noexcept|decltype|requires)\s*\([^()]*\)", " ", text)
    if re.match(r"\s*(?:const\s+)?std::function<|[^;{=]*\(\*\w+\)\s*\(|\s*#", text):
        return "any"
    while (shorter := re.sub(r"<[^<>;{}]*>", " ", text)) != text:  # from the inside out
        text = shorter
    text = re.sub(r"^\s*(?:template|extern\s+\"C\"\s*\{?)\s*", "", text)
    if re.match(r"\s*(?:class|struct|union|enum|using|concept|typedef|namespace|friend)\b", text):
        return "other"
    head = re.split(r"[={;]", text, maxsplit=1)[0]
    return "function" if re.search(r"\w\s*\(", head) else "other"


def complaint(sentence, declaration):
    """Returns what is wrong with the beginning of a comment, or None."""
    if not sentence or sentence.startswith(NO_SENTENCE):
        return None
    match = re.match(r"[\"'(]*([A-Za-z][A-Za-z-]*)(?![\w(`]|[:.]\w|::)", sentence)
    first = match[1].lower() if match else ""
    if first in RIDDLES or ONE.match(sentence):
        return f'begins with "{sentence.split()[0]}"'
    if pronoun := PRONOUN.search(sentence):
        return f'has a sentence that begins with "{pronoun[1]}"'
    what = kind(declaration)
    is_verb = first.endswith("s") and (not first.endswith("ss") or first == "passes") and first not in NO_VERBS
    if what == "function" and first != "whether" and not is_verb:
        return "is of a function and does not begin with a verb"
    if what == "other" and first in VERBS:
        return f'is of no function and begins with the verb "{first}"'
    return None


def comments(text):
    """Yields (line, first sentence, declaration) of each doc comment."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        trailing = TRAILING.match(lines[at])
        if trailing and not COMMENT.match(lines[at]):
            yield at + 1, trailing[2], trailing[1]
        match = COMMENT.match(lines[at])
        if not match:
            at += 1
            continue
        start, words = at, []
        while at < len(lines) and (match := COMMENT.match(lines[at])):
            words.append(match[1].strip())
            at += 1
        yield start + 1, " ".join(words).strip(), "\n".join(lines[at:at + 8])


def violations(path, text):
    """Returns sentences about the doc comments in one file."""
    for line, sentence, declaration in comments(text):
        if what := complaint(sentence, declaration):
            short = re.split(r"(?<=[.;:])\s", sentence)[0]
            yield f"{path}:{line}: the comment \"{short[:120]}\" {what}; the rule: {RULE}"


def main():
    problems = []
    files = [path for path in tracked(SUFFIXES)
             if str(path).startswith(CHECKED)]
    for path in files:
        problems += violations(path, read(path))
    print("\n".join(problems + [f"{len(files)} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
