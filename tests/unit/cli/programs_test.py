#!/usr/bin/env python3
"""usage: programs_test.py VERSION PROGRAM...: what all programs do alike. Each says its name and the version of whorl,
in --version and in its manual page, and refuses options that it does not know."""
import pathlib
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
