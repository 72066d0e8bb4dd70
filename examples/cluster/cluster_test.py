#!/usr/bin/env python3
"""usage: cluster_test.py SUM_PROGRAM: the examples of this folder do what they say. The pods of the Kubernetes job are
processes here, and two_hosts.sh joins two network namespaces; ends with 77 where neither can be tried."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

SUM = pathlib.Path(sys.argv[1]).resolve()
FOLDER = pathlib.Path(__file__).resolve().parent
PLAIN = {key: value for key, value in os.environ.items() if not key.startswith(("WHORL_", "SLURM_", "PMI"))}


def lines_of_sum(ranks):
    return sorted(f"rank {rank}: {ranks} ranks, their numbers add up to {ranks * (ranks - 1) // 2}"
                  for rank in range(ranks))


class Kubernetes(unittest.TestCase):
    def setUp(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("python3-yaml is not installed")
        with open(FOLDER / "kubernetes.yaml", encoding="utf-8") as file:
            self.service, self.job = yaml.safe_load_all(file)
        self.pod = self.job["spec"]["template"]["spec"]
        self.container, = self.pod["containers"]

    def test_the_schemas_accept_it(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("the Python package kubernetes-validate is not installed")
        for part in (self.service, self.job):
            kubernetes_validate.validate(part, "1.29", strict=True)

    def test_names_agree(self):
        variables = {one["name"]: one.get("value") for one in self.container["env"]}
        host, port = variables["WHORL_ADDRESS"].split(":")
        self.assertEqual(host, f"{self.job['metadata']['name']}-0.{self.pod['subdomain']}")
        self.assertEqual(self.pod["subdomain"], self.service["metadata"]["name"])
        self.assertEqual(self.service["spec"]["selector"], {"job-name": self.job["metadata"]["name"]})
        self.assertEqual(int(port), self.service["spec"]["ports"][0]["port"])
        for number in ("completions", "parallelism"):
            self.assertEqual(str(self.job["spec"][number]), variables["WHORL_NRANKS"])
        volumes = {one["name"] for one in self.pod["volumes"]}
        self.assertEqual({one["name"] for one in self.container["volumeMounts"]}, volumes)

    def test_the_pods_as_processes(self):
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            server.close()
            mode, = [one["secret"]["defaultMode"] for one in self.pod["volumes"] if "secret" in one]
            # As the kubelet mounts it: a link to the file.
            data = pathlib.Path(folder, "data")
            data.write_text("a secret of more than sixteen bytes\n", encoding="utf-8")
            data.chmod(mode)
            pathlib.Path(folder, "secret").symlink_to(data)
            os.symlink(SUM, pathlib.Path(folder, "sum"))
            pods = []
            for index in range(self.job["spec"]["completions"]):
                variables = dict(PLAIN)
                for one in self.container["env"]:
                    if "valueFrom" in one:
                        self.assertIn("job-completion-index", one["valueFrom"]["fieldRef"]["fieldPath"])
                    variables[one["name"]] = one.get("value", str(index))
                variables["WHORL_SECRET_FILE"] = f"{folder}/secret"
                variables["WHORL_ADDRESS"] = f"127.0.0.1:{port}"
                command = [word.replace("/app/", folder + "/") for word in self.container["command"]]
                pods.append(subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE,
                                             stderr=subprocess.STDOUT))
                self.addCleanup(pods[-1].kill)
            printed = [pod.communicate(timeout=60)[0] for pod in pods]
        self.assertEqual(sorted("".join(printed).splitlines()), lines_of_sum(len(pods)))


class TwoHosts(unittest.TestCase):
    NAMES = tuple(f"cluster{os.getpid()}{side}" for side in "ab")

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and iproute2")
        self.addCleanup(self.remove)
        first, second = self.NAMES
        for words in (["netns", "add", first], ["netns", "add", second],
                      ["-n", first, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                       second]):
            if subprocess.run(["ip", *words], capture_output=True, check=False).returncode != 0:
                self.skipTest("network namespaces cannot be made here")
        for number, name in enumerate(self.NAMES, 1):
            for words in (["link", "set", "lo", "up"], ["addr", "add", f"10.79.0.{number}/24", "dev", "cable"],
                          ["link", "set", "cable", "up"]):
                subprocess.run(["ip", "-n", name, *words], check=True)

    def remove(self):
        for name in self.NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def test_a_program_on_both(self):
        with tempfile.TemporaryDirectory() as folder:
            remote = pathlib.Path(folder, "remote")  # in place of ssh
            remote.write_text('#!/bin/sh\nexec ip netns exec "$1" unshare --uts sh -c "hostname $1; $2"\n',
                              encoding="utf-8")
            remote.chmod(0o700)
            first, second = self.NAMES
            done = subprocess.run(
                ["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", f'hostname {first}; exec "$@"', "sh",
                 FOLDER / "two_hosts.sh", "10.79.0.1", second, "sh", "-c", 'exec "$1"', "it's sh", SUM],
                env=PLAIN | {"REMOTE": str(remote), "TMPDIR": folder}, capture_output=True, text=True, timeout=60,
                check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.splitlines()), lines_of_sum(2))
            self.assertEqual(os.listdir(folder), ["remote"], "a secret was left behind")


class Scripts(unittest.TestCase):
    def test_shells_understand_them(self):
        for shell, name in (("sh", "two_hosts.sh"), ("bash", "slurm.sh")):
            subprocess.run([shell, "-n", FOLDER / name], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", FOLDER / name], check=True)

    def test_slurm_with_and_without_pmix(self):
        for kinds, expected in (("none pmi2 pmix", "--mpi=pmix program 1"), ("none pmi2", "--mpi=none program 1")):
            with tempfile.TemporaryDirectory() as folder:
                srun = pathlib.Path(folder, "srun")
                srun.write_text(f'#!/bin/sh\nif [ "$1" = --mpi=list ]; then echo {kinds} >&2; exit; fi\n'
                                'echo "$*"\n[ -z "$WHORL_SECRET_FILE" ] || stat -c %a "$WHORL_SECRET_FILE"\n',
                                encoding="utf-8")
                srun.chmod(0o700)
                done = subprocess.run(["bash", FOLDER / "slurm.sh", "program", "1"], check=True, text=True,
                                      env=PLAIN | {"PATH": f"{folder}:{PLAIN['PATH']}", "HOME": folder,
                                                   "SLURM_JOB_ID": "7"}, stdout=subprocess.PIPE)
                self.assertEqual(done.stdout.splitlines()[0], expected)
                self.assertEqual(done.stdout.splitlines()[1:], ["600"] * ("none" in expected))
                self.assertEqual(os.listdir(folder), ["srun"], "a secret was left behind")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
