#!/usr/bin/env python3
"""Tests of the lint tests: each rule fires on bad code and is silent on good code."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import count_tests  # noqa: E402
from comment_rules import violations as comment_violations  # noqa: E402
from include_rules import allowed, violations, wrong_rows  # noqa: E402
from record_page import problems as record_problems  # noqa: E402
from source_rules import code_violations, text_violations  # noqa: E402
from transport_pages import problems, virtuals  # noqa: E402

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

    def test_rows_of_the_page(self):
        page = "\n".join(f"| `{room}` | contents | {allowed(room)} |"
                         for room in ("src/net", "src/api", "include"))
        wrong = " ".join(wrong_rows(page.replace("openssl", "")))
        self.assertIn("`src/net`", wrong)
        self.assertIn("`src/exec`", wrong)
        self.assertNotIn("`src/api`", wrong)

    def test_message_names_the_rule(self):
        self.assertIn("src/schedule -> src/base",
                      includes("src/schedule/a.cc", '#include "api/group.h"')[0])


class TransportPages(unittest.TestCase):
    HEADER = """
class Endpoint {
  virtual ~Endpoint() = default;
  /// virtual void commented() = 0;
  virtual void commit(int bytes,
                      int number) noexcept = 0;
  virtual bool flushed() noexcept { return true; }
};
"""
    PAGE = """
### What an `Endpoint` must have
| call | contract |
|---|---|
| `commit()` | as `other()` |
### What an `Endpoint` may have
| `flushed()` | |
"""

    def found(self, page):
        return list(problems(page, {"Endpoint": virtuals(self.HEADER, "Endpoint")}))

    def test_the_page_must_list_what_the_header_declares(self):
        self.assertEqual(virtuals(self.HEADER, "Endpoint"), ({"commit"}, {"flushed"}))
        self.assertEqual(self.found(self.PAGE), [])
        self.assertEqual(len(self.found(self.PAGE.replace("| `commit()`", "| `send()`"))), 2)
        self.assertEqual(len(self.found(self.PAGE.replace("may have", "can"))), 1)


class RecordPage(unittest.TestCase):
    SOURCE = 'out{{"rank", 1}}; out["state"] = done ? "completed" : "started"; out["wait"] = {{"text", text}};'
    PAGE = """
## The flight recorder
| field | meaning |
|---|---|
| `rank` | who |
| `wait` | in words (`text`) |
| `state` | `started`, `completed` |
"""

    def test_the_page_must_list_what_the_source_writes(self):
        self.assertEqual(list(record_problems(self.PAGE, self.SOURCE)), [])
        self.assertIn("leaves out `rank`", "".join(record_problems(self.PAGE.replace("`rank`", ""), self.SOURCE)))
        self.assertIn("leaves out `text`", "".join(record_problems(self.PAGE.replace("`text`", ""), self.SOURCE)))
        self.assertIn("has `ended`", "".join(record_problems(self.PAGE.replace("`completed`", "`ended`"), self.SOURCE)))
        self.assertEqual(len(list(record_problems("", self.SOURCE))), 1)


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


class CommentRules(unittest.TestCase):
    def found(self, text):
        return list(comment_violations(pathlib.PurePath("src/comm/x.h"), text))

    def test_functions_begin_with_verbs(self):
        for good in ["/// Returns the rank.\nint rank();", "/// Whether it runs.\nbool runs() const;",
                     "/// Moves data,\n/// the bytes of all ranks.\nvoid move();",
                     "/// Compares `a` and `b`.\ntemplate <class T>\nbool operator==(T a, T b);",
                     "int error() const; ///< returns −errno after a failure",
                     "/// @name Collectives\nvoid f();"]:
            self.assertEqual(self.found(good), [], good)
        for bad in ["/// The rank.\nint rank();", "/// Kernels of a device.\nint f();",
                    "/// As f(), but faster.\nvoid g();", "/// kDone: nothing is left.\nProgress h();",
                    "/// `bytes` are sent.\n[[nodiscard]] std::vector<int> send(int bytes);",
                    "/// Bytes per rank.\nauto operator->() const { return f_; }",
                    "int error() const; ///< −errno after a failure", "int f(); ///< never blocks"]:
            self.assertEqual(len(self.found(bad)), 1, bad)

    def test_the_rest_begins_with_nouns(self):
        for good in ["/// The ranks of a host.\nclass Node {", "int count = 0; ///< number of ranks",
                     "/// One rank's part.\nstruct Part {", "bool set; ///< whether a value was given",
                     "/// Function that reads a value.\nusing Read = std::function<int(int)>;",
                     "/// Returns a value.\nstd::function<int(int)> read;",
                     "Fd fd_{open(1)}; ///< descriptor of the file", "  kNone, ///< no rank"]:
            self.assertEqual(self.found(good), [], good)
        for bad in ["/// Holds the ranks of a host.\nclass Node {", "int count = 0; ///< of the ranks",
                    "/// What a rank knows.\nstruct Part {", "bool set; ///< that a value was given",
                    "/// One that waits.\nclass Waiter;", "  kNone, ///< it has no rank",
                    "/// By which a rank is known.\nusing Name = std::string;"]:
            self.assertEqual(len(self.found(bad)), 1, bad)

    def test_no_sentence_begins_with_a_pronoun(self):
        self.assertEqual(self.found("/// Returns a rank. The rank is positive.\nint f();"), [])
        self.assertEqual(len(self.found("/// Returns a rank. It is positive.\nint f();")), 1)
        self.assertEqual(len(self.found("/// Set of ranks. Those of a host\n/// are first.\nclass S;")), 1)

    def test_message_names_line_and_sentence(self):
        message, = self.found("int a;\n\n/// Whose rank it is. More.\nint b;\n")
        self.assertTrue(message.startswith('src/comm/x.h:3: the comment "Whose rank it is." begins with'))


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
