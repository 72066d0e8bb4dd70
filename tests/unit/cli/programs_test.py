#!/usr/bin/env python3
"""usage: programs_test.py VERSION PROGRAM...: what all programs do alike. Each says its name and the version of whorl,
in --version and in its manual page, and refuses options that it does not know."""
import os
import pathlib
import pty
import subprocess
import sys
import unittest

VERSION, *PROGRAMS = sys.argv[1:]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


class Version(unittest.TestCase):
    def test_is_printed_after_the_name(self):
        for program in PROGRAMS:
            self.assertEqual(f"{pathlib.Path(program).name} {VERSION}\n", output(program, "--version"))

    def test_is_an_option_of_every_help(self):
        for program in PROGRAMS:
            self.assertIn("--version", output(program, "--help"), program)

    def test_is_in_manual_pages(self):
        for program in PROGRAMS:
            if pathlib.Path(program).name.endswith("_perf"):
                continue  # whorl-perf has the page of all of these programs
            page = output(program, "--generate", "man")
            self.assertIn(f'"whorl {VERSION}"', page)
            self.assertIn("\\-\\-version", page)


class Refusal(unittest.TestCase):
    def test_names_the_program_and_the_options_in_their_order(self):
        for program in PROGRAMS:
            name = pathlib.Path(program).name
            first = {"whorl-explain": ["allreduce"], "whorl-schedule": ["list"], "whorl-perf": ["all_reduce"]}
            done = subprocess.run([program, *first.get(name, []), "--one", "--two"], capture_output=True, text=True,
                                  timeout=60, check=False)
            name += " all_reduce" * (name == "whorl-perf")
            self.assertEqual((2, ""), (done.returncode, done.stdout))
            self.assertEqual(f"{name}: there is no option or argument --one --two ({name} --help lists the options)\n",
                             done.stderr)

    def test_of_a_full_disk_is_reported(self):
        for program in PROGRAMS:
            for option in ("--help", "--version"):
                with open("/dev/full", "w", encoding="utf-8") as full:
                    done = subprocess.run([program, option], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                          check=False)
                self.assertEqual(2, done.returncode, program)
                self.assertIn(f"{pathlib.Path(program).name}: cannot write the output", done.stderr)


def named(name):
    return next((program for program in PROGRAMS if pathlib.Path(program).name == name), None)


@unittest.skipIf(None in (named("whorl-stat"), named("all_reduce_perf")), "not all programs are built")
class Terminal(unittest.TestCase):
    def on_terminal(self, kind):
        """Returns what a run of two seconds writes to a terminal of this kind."""
        terminal, other_end = pty.openpty()
        command = [named("all_reduce_perf"), "--ranks", "2", "--sizes", "8,64", "-n", "2", "-N", "3"]
        with subprocess.Popen(command, stdout=other_end, stderr=other_end, env={**os.environ, "TERM": kind}) as run:
            os.close(other_end)
            text = b""
            try:
                while some := os.read(terminal, 65536):
                    text += some
            except OSError:  # the program has closed its end
                pass
            self.assertEqual(0, run.wait(timeout=60), text)
        os.close(terminal)
        return text

    def test_a_dumb_one_is_sent_no_control_sequences(self):
        self.assertIn(b"\x1b[", self.on_terminal("xterm"))
        self.assertNotIn(b"\x1b", self.on_terminal("dumb"))

    def test_a_pipe_is_sent_no_control_sequences(self):
        command = [named("all_reduce_perf"), "--ranks", "2", "--sizes", "8", "-N", "0"]
        run = self.started(command)
        ranks = []
        for line in run.stdout:
            if line.startswith("#  Rank"):
                ranks.append(line.split()[4])
            if line.startswith("# Cycle"):
                break
        self.assertEqual(2, len(ranks))
        watch = self.started([named("whorl-stat"), "--watch", "0.1", *ranks])
        text = ""
        while text.count("communicator ") < 3:  # tables
            line = watch.stdout.readline()
            self.assertTrue(line, "whorl-stat has ended")
            text += line
        self.assertNotIn("\x1b", text)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([named("whorl-stat"), "--watch", "0.1", *ranks], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=30, check=False)
        self.assertEqual((2, "whorl-stat: cannot write the output\n"), (done.returncode, done.stderr))

    def started(self, command):
        """Starts a program that has no end of its own; it is ended with the test."""
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.communicate)
        self.addCleanup(program.terminate)
        return program


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
