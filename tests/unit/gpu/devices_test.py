#!/usr/bin/env python3
"""Tests of whorl-devices on pretended devices and on machines without devices: devices_test.py PROGRAM
FOLDER-OF-PRETENDED-LIBRARIES"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv[1]
LIBRARIES = str(Path(sys.argv[2]).resolve())


def run(*arguments: str, libraries: str | None = LIBRARIES, **more: str) -> str:
    # Meson adds the folder, too.
    known = [one for one in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
             if one and str(Path(one).resolve()) != LIBRARIES]
    path = os.pathsep.join(([libraries] if libraries else []) + known)
    done = subprocess.run([PROGRAM, *arguments], env={**os.environ, "LD_LIBRARY_PATH": path, **more},
                          text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Devices(unittest.TestCase):
    def test_two_with_links(self) -> None:
        found = json.loads(run("--json", FAKE_CUDA_DEVICES="2", FAKE_NVML_LINKS="3"))
        self.assertTrue(found["supported"])
        self.assertEqual(found["driver"], "pretended")
        self.assertEqual([one["bus_id"] for one in found["devices"]],
                         ["00000000:1b:00.0", "00000000:2b:00.0"])
        self.assertEqual([one["nvlinks"] for one in found["pairs"]], [3, 3])
        text = run(FAKE_CUDA_DEVICES="2", FAKE_NVML_LINKS="3")
        self.assertIn("device 0 to 1: 3 NVLinks; reads: yes", text)
        self.assertIn("NVLink 2, version 4, to gpu 00000000:2b:00.0", text)
        self.assertRegex(text, r"kernels: .*for drivers of CUDA \d+\.\d+ and newer\n")

    def test_versions_that_do_not_match(self) -> None:
        text = run(FAKE_NVML_INIT="18")
        self.assertIn("takes no memory of devices here: ", text)
        self.assertIn("Driver/library version mismatch", text)
        self.assertIn("restart the machine", text)
        self.assertIn("no description of devices", text)

    def test_no_management_library(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "libcuda.so.1").symlink_to(Path(LIBRARIES) / "libcuda.so.1")
            text = run(libraries=folder)
        self.assertIn("takes memory of devices here", text)
        self.assertIn("no description of devices: libnvidia-ml.so.1", text)

    def test_unknown_argument(self) -> None:
        done = subprocess.run([PROGRAM, "--jsn"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--jsn", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
