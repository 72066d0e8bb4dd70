#!/usr/bin/env python3
"""usage: info_test.py WHORL-INFO LIBWHORL: what whorl-info says in several environments, and what the log of a
communicator says at WHORL_LOG=info."""
import json
import os
import subprocess
import sys
import unittest

INFO, LIBRARY = sys.argv.pop(1), sys.argv.pop(1)
LAUNCHERS = ("WHORL_", "PMI", "OMPI_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_")
CREATE = """
import ctypes
whorl = ctypes.CDLL({library!r})
whorl.whorlGetLastError.restype = ctypes.c_char_p
comms = (ctypes.c_void_p * {ranks})()
if whorl.whorlCommInitAll(comms, {ranks}, None) != 0:
    raise SystemExit(whorl.whorlGetLastError(None).decode())
for comm in comms:
    whorl.whorlCommDestroy(ctypes.c_void_p(comm))
"""


def environment(**variables):
    return {**{k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}, **variables}


def ask(*arguments, status=0, **variables):
    """Returns what whorl-info prints."""
    done = subprocess.run([INFO, *arguments], capture_output=True, text=True, env=environment(**variables),
                          timeout=60, check=False)
    if done.returncode != status:
        raise AssertionError(f"status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def facts(**options):
    return json.loads(ask("--json", **options))


def taken(all_facts, pair):
    return [one["name"] for one in all_facts["transports"] if one[pair]["taken"]]


def reason(all_facts, name, pair):
    return next(one[pair]["why_not"] for one in all_facts["transports"] if one["name"] == name)


class Info(unittest.TestCase):
    def test_says_which_transport_connects_two_ranks(self):
        found = facts()
        self.assertEqual(["inproc"], taken(found, "one_process"))
        self.assertEqual(["shm"], taken(found, "one_host"))
        self.assertEqual(1, len(taken(found, "two_hosts")))
        self.assertIn("different machines", reason(found, "shm", "two_hosts"))

    def test_says_why_tcp_is_used_on_one_host(self):
        found = facts(WHORL_TRANSPORTS="tcp")
        self.assertEqual(["tcp"], taken(found, "one_host"))
        self.assertIn("WHORL_TRANSPORTS does not name it", reason(found, "shm", "one_host"))
        text = ask(WHORL_TRANSPORTS="tcp")
        self.assertRegex(text, r"of one host: tcp\n(    not .*\n)*    not shm: WHORL_TRANSPORTS does not name it")

    def test_says_at_which_addresses_other_hosts_reach_this_one(self):
        found = facts()["network"]["addresses"]
        outer = [one for one in found if one != "[::1]" and not one.startswith("127.")]
        self.assertIn(f" at {', '.join(outer or found)}\n", ask())

    def test_names_variables_and_those_that_are_unknown(self):
        found = facts(WHORL_SLOTS="16", WHORL_TRANSPORT="tcp")
        self.assertEqual(["WHORL_SLOTS=16"], found["variables"])
        self.assertEqual(1, len(found["unknown_variables"]))
        self.assertIn("did you mean WHORL_TRANSPORTS?", found["unknown_variables"][0])

    def test_names_the_launcher(self):
        self.assertEqual("no launcher", facts()["launcher"]["name"])
        found = facts(RANK="1", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHELASTIC_RUN_ID="x")
        self.assertEqual((1, 4), (found["launcher"]["rank"], found["launcher"]["nranks"]))
        self.assertIn("error", facts(WHORL_RANK="7", WHORL_NRANKS="2", status=1)["launcher"])

    def test_names_the_variables_that_start_ranks(self):
        unset = dict.fromkeys(("WHORL_RANK", "WHORL_NRANKS", "WHORL_ADDRESS", "WHORL_PORT"))
        self.assertEqual(unset, self.launch_variables())
        given = {"WHORL_RANK": "0", "WHORL_NRANKS": "1"}
        self.assertEqual({**unset, **given}, self.launch_variables(**given))
        self.assertEqual({**unset, "SLURM_PROCID": "3"}, self.launch_variables(SLURM_PROCID="3"))
        text = ask(**given, SLURM_PROCID="3\n")
        self.assertRegex(text, r"by a launcher\n  WHORL_RANK=0\n  WHORL_NRANKS=1\n  WHORL_ADDRESS is not set\n"
                               r"  WHORL_PORT is not set\n  SLURM_PROCID=3 \nvariables in force\n")

    def test_shows_values_that_are_not_utf_8(self):
        self.assertEqual("\ufffd7", self.launch_variables(RANK="\udcff7")["RANK"])

    def launch_variables(self, **variables):
        return {one["name"]: one["value"] for one in facts(**variables)["launch_variables"]}

    def test_says_that_no_communicator_can_be_made(self):
        self.assertIn("WHORL_SLOT_BYTES", facts(WHORL_SLOT_BYTES="12", status=1)["settings"]["error"])
        self.assertIn("no communicator can be made", ask(WHORL_TRANSPORTS="smoke", status=1))


class Log(unittest.TestCase):
    def log(self, ranks=3, **variables):
        """Returns the lines that the creation of a communicator logs."""
        done = subprocess.run([sys.executable, "-c", CREATE.format(library=LIBRARY, ranks=ranks)],
                              capture_output=True, text=True, env=environment(**variables), timeout=60, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stderr.splitlines()

    def test_tells_the_choices_once_for_a_communicator(self):
        lines = self.log(WHORL_LOG="info", WHORL_TRANSPORTS="tcp")
        reaches = [line for line in lines if " reaches " in line]
        self.assertEqual(1, len(reaches), lines)
        self.assertRegex(reaches[0], "rank 0 reaches ranks 1-2 by tcp; not by shm, though on one machine: "
                                     "WHORL_TRANSPORTS does not name it")
        self.assertEqual(1, sum("WHORL_LOG=info WHORL_TRANSPORTS=tcp" in line or
                                "WHORL_TRANSPORTS=tcp WHORL_LOG=info" in line for line in lines), lines)
        self.assertEqual(1, sum(" has joined " in line for line in lines), lines)

    def test_takes_few_lines_for_a_communicator(self):
        lines = self.log(WHORL_LOG="info", WHORL_TRANSPORTS="inproc,shm,tcp")
        self.assertEqual(1, sum("rank 0 reaches ranks 1-2 by inproc" in line for line in lines), lines)
        self.assertLessEqual(len(lines), 5, lines)

    def test_is_silent_without_the_variable(self):
        self.assertEqual([], self.log())

    def test_warns_of_a_level_that_does_not_exist(self):
        lines = self.log(WHORL_LOG="loud")
        self.assertEqual(1, len(lines), lines)
        self.assertIn('WHORL_LOG="loud" is none of off, error, warn and info; warn is used', lines[0])


if __name__ == "__main__":
    unittest.main()
