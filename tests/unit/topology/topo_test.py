#!/usr/bin/env python3
"""Tests of whorl-topo: topo_test.py PROGRAM TEMPLATE-OF-A-MACHINE [FOLDER-OF-PRETENDED-LIBRARIES]"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

PROGRAM, MACHINE = sys.argv[1:3]
LIBRARIES = str(Path(sys.argv[3]).resolve()) if len(sys.argv) > 3 else None


def run(*arguments: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run([PROGRAM, *arguments], env={**os.environ, **environment}, text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


class Topo(unittest.TestCase):
    def test_shows_a_file(self) -> None:
        text = run("--file", MACHINE).stdout
        for line in ("2 NUMA nodes, 32 CPUs, 2 GPUs, 2 NICs, 2 PCI switches",
                     "GPU0 - GPU1: 4 × NVLink, ~100.0 GB/s",
                     "GPU1   NV4    X      SYS    PIX    16-31         1",
                     "GPU0: NIC0 (mlx5_0) (PIX, 25.0 GB/s)",
                     "4 × ~25.0 GB/s over links: GPU0 GPU1"):
            self.assertIn(line, text.splitlines(), text)
        self.assertIn("~116.0 GB/s of bus bandwidth, limited by what leaves GPU0 | GPU1", text)

    def test_shows_parts(self) -> None:
        whole = run("--file", MACHINE).stdout
        for flag in ("--tree", "--matrix", "--nics", "--rings", "--bound"):
            part = run("--file", MACHINE, flag).stdout
            self.assertIn(part, whole)
            self.assertLess(len(part), len(whole) / 2)

    def test_says_that_there_is_no_gpu(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write('<system version="1"><cpu numaid="0" affinity="1"/></system>')
            file.flush()
            self.assertEqual(run("--file", file.name, "--nics").stdout, "There is no GPU.\n")
            self.assertNotIn("GPU", run("--file", file.name).stdout)

    def test_json(self) -> None:
        found = json.loads(run("--file", MACHINE, "--json").stdout)
        self.assertEqual(found["source"], "NCCL")
        nodes = found["nodes"]
        gpus = [node["id"] for node in nodes if node["kind"] == "GPU"]
        self.assertEqual([nodes[one]["bus_id"] for one in gpus], ["0000:11:00.0", "0000:21:00.0"])
        nearest = found["nearest_nics"][str(gpus[1])]
        self.assertEqual([nodes[one]["name"] for one in nearest], ["mlx5_1"])
        self.assertEqual(found["rings"][0]["order"], gpus)
        self.assertAlmostEqual(found["bounds"]["broadcast"]["bus_gb_per_s"], 116)

    def test_json_keeps_its_schema(self) -> None:
        try:
            import jsonschema
        except ModuleNotFoundError:
            self.skipTest("python3-jsonschema is not installed")
        schema = json.loads(Path(MACHINE).with_name("topology.schema.json").read_text(encoding="utf-8"))
        validator = jsonschema.validators.validator_for(schema)
        validator.check_schema(schema)
        recorded = Path(MACHINE).resolve().parents[2] / "shared/data/topology"
        for machine in [None, Path(MACHINE), *sorted(recorded.glob("*.xml"))]:
            with self.subTest(machine=machine):
                found = json.loads(run(*(["--file", str(machine)] if machine else []), "--json").stdout)
                validator(schema).validate(found)
                found["nodes"][0]["kind"] = "planet"
                self.assertFalse(validator(schema).is_valid(found))

    def test_exports(self) -> None:
        matrix = run("--file", MACHINE, "--matrix").stdout
        with tempfile.TemporaryDirectory() as folder:
            for form in ("nccl", "hwloc"):
                path = Path(folder) / form
                path.write_text(run("--file", MACHINE, "--export", form).stdout, encoding="utf-8")
                self.assertEqual(run("--file", str(path), "--matrix").stdout, matrix)

    def test_shows_the_network(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("SwitchName=top Switches=s[1-2] Color=red\n"
                       "SwitchName=s1 Nodes=n[01-16]\nSwitchName=s2 Nodes=n[17-32]\n")
            file.flush()
            done = run("--fabric", file.name)
            self.assertEqual(done.stdout, "32 hosts, 2 leaves with 16 hosts each, "
                             "1 other switch or group\n\n"
                             "top\n  s1: 16 hosts, n[01-16]\n  s2: 16 hosts, n[17-32]\n")
            self.assertEqual(done.stderr, f"note: {file.name}: line 1: Color is unknown, and left out\n")
            self.assertEqual(run("--fabric", file.name, "--host", "n20.cluster").stdout, "n20: s2, top\n")
            self.assertIn("there is no host n33", run("--fabric", file.name, "--host", "n33", status=2).stderr)
        self.assertIn("No such file", run("--fabric", "/nonexistent", status=2).stderr)
        self.assertIn("too large", run("--fabric", "/dev/zero", status=2).stderr)
        self.assertIn("too large", run("--file", "/dev/zero", status=2).stderr)

    def test_this_machine(self) -> None:
        self.assertIn("core", run().stdout.splitlines()[0])
        self.assertTrue(json.loads(run("--json").stdout)["nodes"])

    def test_bad_input(self) -> None:
        self.assertIn("No such file", run("--file", "/nonexistent", status=2).stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write("<system>\n<cpu>\n")
            file.flush()
            self.assertIn(f"{file.name}, line 2: not well-formed",
                          run("--file", file.name, status=2).stderr)
        self.assertIn("--export", run("--export", "pdf", status=2).stderr)
        self.assertIn("by a call each", run("--svg", "--tree", status=2).stderr)
        self.assertIn("--bind", run("--bind", "0", status=2).stderr)
        self.assertIn("No such file", run("--file", MACHINE, "--diff", "/nonexistent", status=2).stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "--file", MACHINE, "--tree"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, "cannot write the output" in done.stderr), (2, True), done.stderr)

    def test_help(self) -> None:
        text = run("--help").stdout
        for option in ("--file FILE", "--matrix", "--check", "--diff FILE", "--bind RANKS", "--svg"):
            self.assertIn(f"  {option}", text)
        self.assertIn("Exit status: 0;", text)

    def test_svg(self) -> None:
        text = run("--file", MACHINE, "--svg").stdout
        root = ElementTree.fromstring(text)
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for part in ("NUMA node 1", "PCI switch 0000:20:00.0", "GPU1  0000:21:00.0", "NIC1 (mlx5_1)",
                     "4 NVLinks (~100.0 GB/s) between"):
            self.assertIn(part, words)
        ElementTree.fromstring(run("--svg").stdout)

    def test_bind(self) -> None:
        text = run("--file", MACHINE, "--bind", "2").stdout
        for line in ("1     16-31  16     NUMA node 1  GPU1  NIC1 (mlx5_1)",
                     "taskset -c 16-31 PROGRAM  # rank 1"):
            self.assertIn(line, text.splitlines(), text)
        self.assertIn("share", run("--bind", "4096").stdout)

    def test_check(self) -> None:
        self.assertEqual(run("--file", MACHINE, "--check").stdout, "No fault is known.\n")
        with self.changed('link_speed="16 GT/s" link_width="16">\n        <nic>',
                          'link_speed="16 GT/s" link_width="8">\n        <nic>') as path:
            text = run("--file", path, "--check", status=1).stdout
            self.assertEqual(len(text.splitlines()), 2, text)
            self.assertIn("PCI link of card 0000:12:00.0 has 15.8 GB/s", text)
            self.assertIn("NIC0 (mlx5_0) at 0000:12:00.0 can transfer 25.0 GB/s", text)

    def test_diff(self) -> None:
        self.assertEqual(run("--file", MACHINE, "--diff", MACHINE).stdout, "Nothing differs.\n")
        with self.changed('count="4"', 'count="3"') as path:
            text = run("--file", MACHINE, "--diff", path, status=1).stdout
            self.assertEqual(text, "Between GPU0 and GPU1 there are 4 NVLinks (~100.0 GB/s) on "
                                   "two_gpus.xml and 3 NVLinks (~75.0 GB/s) on "
                                   f"{Path(path).name}.\n")
        self.assertIn("this machine", run("--diff", MACHINE, status=1).stdout)

    @contextlib.contextmanager
    def changed(self, old: str, new: str) -> Iterator[str]:
        """Yields the path of a copy of the machine in which the first `old` is `new`."""
        text = Path(MACHINE).read_text(encoding="utf-8")
        self.assertIn(old, text)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(text.replace(old, new, 1))
            file.flush()
            yield file.name

    @unittest.skipIf(LIBRARIES is None, "there is no pretended driver in this build")
    def test_links_of_the_driver(self) -> None:
        known = os.environ.get("LD_LIBRARY_PATH", "")
        text = run(LD_LIBRARY_PATH=f"{LIBRARIES}{os.pathsep}{known}", FAKE_CUDA_DEVICES="2",
                   FAKE_NVML_LINKS="3").stdout
        self.assertIn("GPU0 - GPU1: 3 × NVLink, 75.0 GB/s", text.splitlines(), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
