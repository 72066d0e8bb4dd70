#!/usr/bin/env python3
"""Tests of the runner itself: a wrong training must not get the verdict "equal"."""
import dataclasses
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import launch
import runner
import verdict
from case import Case, Training, World
from systems import all_cases


def result(losses: list[float | None], digest: str = "a", **values: float) -> dict:
    return {"losses": losses, "digest": digest, "values": values, "seconds": 1.0, "samples": 1}


def fault(world: World, step: int) -> Training:
    """Trains such that two backends differ in one bit of one rank's loss in one step."""
    def one(i: int) -> float:
        total = torch.tensor([4.0 / (i + 1)])
        dist.all_reduce(total)
        return float(total) + (2.0 ** -40 if (i, world.rank, fault.runs) == (step, 1, 1) else 0.0)
    return Training(one, 1)


class Verdict(unittest.TestCase):
    exact = Case("x", 2, lambda world: Training(lambda i: None, 1))
    loose = dataclasses.replace(exact, bound=1e-2)

    def test_equal(self):
        self.assertEqual(verdict.compare(self.exact, [result([2.0, 1.0])], [result([2.0, 1.0])]), [])

    def test_one_bit_of_a_loss(self):
        other = [result([2.0, 1.0 + 2 ** -50])]
        self.assertEqual(len(verdict.compare(self.exact, [result([2.0, 1.0])], other)), 1)
        self.assertEqual(verdict.compare(self.loose, [result([2.0, 1.0])], other), [])

    def test_beyond_the_bound(self):
        self.assertEqual(len(verdict.compare(self.loose, [result([2.0, 1.0])], [result([2.0, 1.02])])), 1)

    def test_weights_values_missing_losses_and_ranks(self):
        one = [result([2.0])]
        self.assertEqual(len(verdict.compare(self.exact, one, [result([2.0], "b")])), 1)
        self.assertEqual(len(verdict.compare(self.loose, one, [result([2.0], spread=1.0)])), 1)
        self.assertEqual(len(verdict.compare(self.loose, one, [result([None])])), 1)
        self.assertEqual(len(verdict.compare(self.loose, one, one * 2)), 1)
        self.assertEqual(len(verdict.compare(self.loose, one, [result([float("nan")])])), 1)

    def test_no_learning(self):
        self.assertEqual(len(verdict.learns(self.exact, [result([2.0, 2.0, 2.0, 1.9])])), 1)
        self.assertEqual(verdict.learns(self.exact, [result([2.0, 2.0, 2.0, 0.5])]), [])

    def test_alone(self):
        case = dataclasses.replace(self.exact, alone_bound=1e-3)
        ranks = [result([2.0]), result([4.0])]
        self.assertEqual(verdict.compare_alone(case, ranks, [result([3.0])]), [])
        self.assertEqual(len(verdict.compare_alone(case, ranks, [result([3.1])])), 1)


class Runs(unittest.TestCase):
    """Tests with real ranks, on gloo."""

    def test_a_flipped_bit_is_found(self):
        fault.runs = -1
        start = launch.run_forked

        def counted(case: Case, backend: str) -> list[dict]:
            fault.runs += 1
            return start(case, backend)

        case = Case("fault", 2, lambda world: fault(world, 3), steps=5, seconds=30)
        with mock.patch.object(launch, "run_forked", counted):
            row = runner.run_case(case, ["gloo", "gloo"], 1, torchrun=False)
        self.assertTrue(any("rank 1, loss of step 3" in what for what in row["wrong"]), row["wrong"])

    def test_a_rank_that_fails_is_named_and_the_others_end(self):
        def make(world: World) -> Training:
            if world.rank == 1:
                raise ValueError("an expected failure")
            return Training(lambda i: float(dist.all_reduce(torch.ones(1)) or 0.0), 1)

        with self.assertRaisesRegex(launch.TrainingFailed, "an expected failure"):
            launch.run_forked(Case("failing", 2, make, seconds=30), "gloo")

    def test_a_rank_that_hangs_is_ended(self):
        def make(world: World) -> Training:
            return Training(lambda i: dist.recv(torch.ones(1), 1 - world.rank), 1)

        with self.assertRaisesRegex(launch.TrainingFailed, "not finished after 3 s"):
            launch.run_forked(Case("hanging", 2, make, seconds=3), "gloo")

    def test_names_are_distinct(self):
        self.assertGreater(len(all_cases()), 30)


if __name__ == "__main__":
    unittest.main()
