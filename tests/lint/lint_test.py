#!/usr/bin/env python3
"""Tests of the lint tests: each rule fires on bad code and is silent on good code."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import count_tests  # noqa: E402
from include_rules import violations  # noqa: E402
from source_rules import code_violations, text_violations  # noqa: E402

FILES = {"src/base/status.h", "src/schedule/schedule.h", "src/api/group.h", "src/exec/plan.h",
         "transports/transport.h", "transports/endpoint.h", "transports/tcp/wire.h",
         "include/whorl/whorl.h", "perf/table.h", "src/comm/setup.h"}


def includes(path, line):
    return list(violations(pathlib.PurePath(path), line + "\n", FILES.__contains__))


def code(text, path="src/comm/x.cc"):
    return list(code_violations(pathlib.PurePath(path), text))


class IncludeRules(unittest.TestCase):
    def test_allowed(self):
        for path, line in [("src/schedule/a.cc", '#include "base/status.h"'),
                           ("src/exec/a.cc", '#include "transports/endpoint.h"'),
                           ("src/comm/a.cc", '#include "transports/tcp/wire.h"'),
                           ("src/base/a.cc", "#include <fmt/core.h>"),
                           ("perf/a.cc", "#include <whorl/whorl.h>"),
                           ("perf/a.cc", "#include <CLI/CLI.hpp>"),
                           ("tests/faults/a.cc", '#include "../support.h"'),
                           ("src/net/a.cc", "#include <openssl/hmac.h>")]:
            self.assertEqual(includes(path, line), [], (path, line))

    def test_forbidden(self):
        for path, line in [("src/base/a.cc", '#include "schedule/schedule.h"'),
                           ("src/exec/a.cc", '#include "transports/tcp/wire.h"'),
                           ("src/exec/a.cc", '#include "transports/transport.h"'),
                           ("src/comm/a.cc", '#include "api/group.h"'),
                           ("src/engine/a.cc", '#include "comm/setup.h"'),
                           ("transports/tcp/a.cc", "#include <openssl/hmac.h>"),
                           ("algorithms/a.cc", '#include "transports/transport.h"'),
                           ("transports/a.cc", '#include "exec/plan.h"'),
                           ("src/exec/a.cc", '#include "api/group.h"'),
                           ("perf/a.cc", '#include "base/status.h"'),
                           ("src/exec/a.cc", "#include <openssl/hmac.h>"),
                           ("src/exec/a.cc", '#include "plan.h"'),
                           ("include/whorl/a.h", "#include <fmt/core.h>")]:
            self.assertEqual(len(includes(path, line)), 1, (path, line))

    def test_message_names_the_rule(self):
        self.assertIn("src/schedule -> src/base",
                      includes("src/schedule/a.cc", '#include "api/group.h"')[0])


class SourceRules(unittest.TestCase):
    def test_waits(self):
        for bad in ["while (flag.load() == 0) {}", "while (!p->load(std::memory_order_acquire)) ;",
                    "for (;x.load() < 3;) {}", "while (f(a(b), c.load())) pause();",
                    "std::this_thread::sleep_for(1s);", "do {} while (x.load());"]:
            self.assertEqual(len(code(bad)), 1, bad)
        for good in ["const auto head = head_.load();", "for (auto i = x.load(); i < n; ++i) {}",
                     "for (; i < count.load(); ++i) {}",
                     "// while (x.load()) spins", "while (n-- > 0) use(x);", 'puts("while (x.load())");',
                     "while (x.load()) {} // lint: bounded by n"]:
            self.assertEqual(code(good), [], good)
        self.assertEqual(code("while (x.load()) {}", "src/base/wait.h"), [])

    def test_system_calls(self):
        for bad in ["::close(fd);", "if (::poll(p, 1, 0)) {}", "munmap(p, n);",
                    "auto t = std::chrono::steady_clock::now();", "int r = rand();"]:
            self.assertEqual(len(code(bad)), 1, bad)
        for good in ["sys().close(fd);", "endpoint.close();", "std::bind(f);", "Wire::read(x);",
                     "operand(3);", "std::chrono::milliseconds(3);"]:
            self.assertEqual(code(good), [], good)
        self.assertEqual(code("::close(fd);", "src/base/system.cc"), [])

    def test_length_and_words(self):
        path = pathlib.PurePath("src/comm/x.cc")
        self.assertEqual(list(text_violations(path, "\n" * 600)), [])
        self.assertEqual(len(list(text_violations(path, "\n" * 601))), 1)
        self.assertEqual(len(list(text_violations(path, "// TO" "DO later\n"))), 1)
        self.assertEqual(list(text_violations(path, "int TODO_list;\n")), [])


class CountTests(unittest.TestCase):
    JUNIT = """<testsuites><testsuite name="whorl.whorl:quick / fifo.In/Wrap"><testcase name="a" status="run"/>
      <testcase name="b"><failure message="x"/></testcase>
      <testcase name="c"><skipped message="no&#10;sockets"/></testcase>
      <testcase name="d" status="notrun"/></testsuite>
      <testsuite name="whorl"><testcase name="whorl:lint / lint"/><testcase name="slow"/>
      <testcase name="absent"><skipped/></testcase></testsuite></testsuites>"""

    def count(self, **results):
        with tempfile.TemporaryDirectory() as folder:
            logs = pathlib.Path(folder)
            (logs / "testlog.junit.xml").write_text(self.JUNIT)
            base = {"fifo": "FAIL", "lint": "OK", "slow": "OK", "absent": "SKIP"}
            with open(logs / "testlog.json", "w", encoding="utf-8") as log:
                for name, result in {**base, **results}.items():
                    log.write(json.dumps({"name": f"whorl:quick / {name}", "result": result,
                                          "stdout": "why not\n"}) + "\n")
            return count_tests.count(logs)

    def test_cases_and_programs(self):
        counts, lines = self.count()
        self.assertEqual(counts, {"passed": 3, "failed": 1, "skipped": 3})
        self.assertIn("skipped: fifo: In/Wrap.c: no sockets", lines)
        self.assertIn("skipped: absent: why not", lines)
        self.assertIn("failed: fifo: In/Wrap.b", lines)

    def test_timeout_is_a_failure_and_not_a_pass(self):
        counts, _ = self.count(slow="TIMEOUT")
        self.assertEqual(counts, {"passed": 2, "failed": 2, "skipped": 3})

    def test_crash_before_the_first_case(self):
        counts, lines = self.count(crashed="FAIL")
        self.assertEqual(counts["failed"], 2)
        self.assertIn("failed: crashed: the program ended with FAIL", lines)


if __name__ == "__main__":
    unittest.main()
