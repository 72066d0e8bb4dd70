#!/usr/bin/env python3
"""Rules about the text of sources: waiting, system calls, length, words. A line that has to break the
wait or the system-call rule has a comment with the reason, on it or on the line above:
`// lint: REASON`."""
import re
import sys

from sources import SUFFIXES, TEXT_SUFFIXES, blank_comments, read, tracked

LIBRARY = ("src/", "transports/", "algorithms/", "topology/")
MAY_WAIT = {"src/base/wait.h", "src/base/wait.cc"}
MAY_CALL_SYSTEM = {"src/base/system.h", "src/base/system.cc"}
WARN_LINES, FAIL_LINES = 350, 600

# Loops on values that another thread changes, and sleeping; the first pattern is searched in the
# condition of a loop, the second anywhere.
LOOP = re.compile(r"\b(?:while|for)\s*\(")
ATOMIC_READ = re.compile(r"(?:\.|->)(?:load|test)\s*\(|\b__atomic_load")
SLEEP = re.compile(r"\bstd::this_thread::|\.wait\s*\(\s*[\w:]*memory_order|\bstd::atomic_wait")

# System calls that System has: forbidden as `::name(`; unambiguous names also without the colons.
SYSTEM = ("memfd_create ftruncate fallocate mmap munmap pidfd_open close socket bind listen accept "
          "accept4 connect getsockname setsockopt getsockopt sendmsg recvmsg send recv sendto "
          "recvfrom read write shutdown poll ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait "
          "epoll_pwait2 nanosleep usleep sched_yield clock_gettime getrandom getrlimit syscall").split()
PLAIN = ("memfd_create ftruncate fallocate munmap pidfd_open accept4 getsockname setsockopt "
         "getsockopt sendmsg recvmsg sendto recvfrom epoll_create1 epoll_ctl epoll_wait "
         "epoll_pwait epoll_pwait2 nanosleep usleep sched_yield clock_gettime getrandom getrlimit").split()
QUALIFIED_CALL = re.compile(r"(?<![\w>])::(" + "|".join(SYSTEM) + r")\s*\(")
PLAIN_CALL = re.compile(r"(?<![\w.>:])(" + "|".join(PLAIN) + r")\s*\(")
CLOCK = re.compile(r"\bstd::chrono::\w*_clock\b|\bstd::random_device\b|(?<![\w.>:])s?rand\s*\(")

BANNED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def condition(code, start):
    """Returns the text between the parentheses that open at `start`; for `for`, only the condition,
    or "" if there is a step, because then the loop counts."""
    depth = 0
    for end in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        if depth == 0:
            inside = code[start + 1:end]
            parts = inside.split(";")
            if len(parts) != 3:
                return inside
            return "" if parts[2].strip() else parts[1]
    return ""


def excused(text, line):
    return any("// lint: " in near for near in text.splitlines()[max(line - 2, 0):line])


def code_violations(path, text):
    """Returns sentences about waits and system calls in one C++ file of the library."""
    code = blank_comments(text)

    def say(position, what, rule):
        line = code.count("\n", 0, position) + 1
        if not excused(text, line):
            yield f"{path}:{line}: {what}; the rule: {rule}"

    if str(path) not in MAY_WAIT:
        rule = "every wait goes through wait_until() of base/wait.h"
        for match in LOOP.finditer(code):
            if ATOMIC_READ.search(condition(code, match.end() - 1)):
                yield from say(match.start(), "a loop on an atomic", rule)
        for match in SLEEP.finditer(code):
            yield from say(match.start(), f"{match.group().strip()} waits by itself", rule)
    if str(path) not in MAY_CALL_SYSTEM:
        rule = "system calls, time and randomness go through sys() of base/system.h"
        for pattern in (QUALIFIED_CALL, PLAIN_CALL):
            for match in pattern.finditer(code):
                yield from say(match.start(), f"{match.group(1)}() is called directly", rule)
        for match in CLOCK.finditer(code):
            yield from say(match.start(), f"{match.group().strip('( ')} is used directly", rule)


def text_violations(path, text):
    """Returns sentences about length and words in one file."""
    lines = text.count("\n")
    if path.suffix in SUFFIXES and lines > FAIL_LINES:
        yield f"{path}: {lines} lines; the rule: at most {FAIL_LINES}, split the file by concern"
    for match in BANNED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}: the word {match.group()}; the rule: finish it or describe the limit"


def main():
    problems, long_files = [], []
    files = tracked(TEXT_SUFFIXES)
    for path in files:
        text = read(path)
        problems += text_violations(path, text)
        if path.suffix in SUFFIXES:
            if str(path).startswith(LIBRARY):
                problems += code_violations(path, text)
            if WARN_LINES < text.count("\n") <= FAIL_LINES:
                long_files.append(f"warning: {path}: {text.count(chr(10))} lines, aim at {WARN_LINES}")
    print("\n".join(long_files + problems + [f"{len(files)} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
