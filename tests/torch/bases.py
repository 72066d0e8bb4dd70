"""Tests on the test bases that the wheel of torch carries, for what `distributed_test` does not touch:
tensors spread over a mesh (DTensor), FSDP, state dictionaries, functional collectives, pipelines. The
files that upstream derives from these bases are not in the wheel; these tests use the bases as they do.
Made for one backend by `classes()`, which upstream.py calls."""
from __future__ import annotations

import copy
import itertools
import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.distributed._tensor import common_dtensor
from torch.testing._internal.distributed.common_state_dict import VerifyStateDictMixin

RANKS = 4


def classes(backend: str, forked: type) -> list[type[unittest.TestCase]]:
    """`forked` starts the ranks."""

    class Meshes(forked, common_dtensor.DTensorTestBase):
        @property
        def world_size(self) -> int:
            return RANKS

        def init_pg(self, eager_init: bool, backend_of_test: str | None = None) -> None:
            dist.init_process_group(backend, rank=self.rank, world_size=self.world_size,
                                    init_method=f"file://{self.file_name}")

        @common_dtensor.with_comms
        def test_dtensor_redistribute(self) -> None:
            mesh = self.build_device_mesh()
            placements = [Replicate(), Shard(0), Shard(1), Shard(2)]
            for shape in ((8, 4, 4), (5, 3, 7), (3, 1, 2)):  # uneven and empty shards too
                torch.manual_seed(0)
                whole = torch.randn(shape)
                for source, target in itertools.product(placements, placements):
                    spread = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
                    self.assertEqual(spread.full_tensor(), whole)
                for target in placements:
                    for operator, expected in (("sum", 10 * whole), ("avg", 2.5 * whole), ("max", None),
                                               ("min", None)):
                        local = whole * (self.rank + 1)
                        part = DTensor.from_local(local, mesh, [Partial(operator)], run_check=False)
                        if expected is None:
                            ends = torch.stack([whole, whole * RANKS])
                            expected = ends.amax(0) if operator == "max" else ends.amin(0)
                        self.assertEqual(part.redistribute(mesh, [target]).full_tensor(), expected)

        @common_dtensor.with_comms
        def test_dtensor_two_dimensions(self) -> None:
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            placements = [Replicate(), Shard(0), Shard(1)]
            torch.manual_seed(0)
            whole = torch.randn(8, 12)
            pairs = list(itertools.product(placements, placements))
            for source, target in itertools.product(pairs, pairs):
                spread = distribute_tensor(whole, mesh, source).redistribute(mesh, target)
                self.assertEqual(spread.full_tensor(), whole)
            # What FSDP makes of a parameter that tensor parallelism has sharded along the same dimension.
            local = distribute_tensor(whole, mesh["tp"], [Shard(0)]).to_local()
            mine = local.chunk(2)[mesh.get_local_rank("dp")]
            strided = DTensor.from_local(mine, mesh, [_StridedShard(0, split_factor=2), Shard(0)],
                                         run_check=False)
            self.assertEqual(strided.full_tensor(), whole)

        @common_dtensor.with_comms
        def test_dtensor_operations(self) -> None:
            mesh = self.build_device_mesh()
            torch.manual_seed(0)
            a, b = torch.randn(8, 12), torch.randn(12, 8)
            self._test_op(mesh, torch.mm, a, b)
            self._test_op(mesh, torch.softmax, a, -1)
            self._test_op(mesh, torch.sum, a, 0)
            self._test_op(mesh, lambda x: x.var(1), a)
            self._test_op(mesh, torch.nn.functional.layer_norm, a, (12,))
            self._test_op(mesh, torch.cat, [a, a], 1)
            for placement in (Shard(0), Shard(1), Replicate()):
                self._test_op_on_dtensor(torch.matmul, distribute_tensor(a, mesh, [placement]),
                                         distribute_tensor(b, mesh, [Replicate()]))

        @common_dtensor.with_comms
        def test_dtensor_gradients(self) -> None:
            mesh = self.build_device_mesh()
            torch.manual_seed(0)
            whole, weights = torch.randn(8, 6), torch.randn(6, 6)
            plain = [whole.clone().requires_grad_(), weights.clone().requires_grad_()]
            (plain[0] @ plain[1]).square().sum().backward()
            for first, second in ((Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0))):
                spread = [distribute_tensor(whole, mesh, [first]).requires_grad_(),
                          distribute_tensor(weights, mesh, [second]).requires_grad_()]
                product = torch.mm(*spread).redistribute(mesh, [Replicate()])
                product.square().sum().backward()
                for ours, theirs in zip(spread, plain):
                    self.assertEqual(ours.grad.full_tensor(), theirs.grad)

        def transformer(self, use_seq_parallel: bool) -> None:
            mesh = self.build_device_mesh()
            arguments = common_dtensor.ModelArgs(dropout_p=0.0, n_heads=4, vocab_size=32, max_seq_len=16, dim=16)
            torch.manual_seed(5)
            model = common_dtensor.Transformer(arguments)
            spread = common_dtensor.Transformer.parallelize(copy.deepcopy(model), mesh, use_seq_parallel,
                                                             local_output_for_attn=True)
            optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (model, spread)]
            torch.manual_seed(0)
            for _ in range(3):
                tokens = torch.randint(32, (4, 16))
                losses = []
                for each, optimizer in zip((model, spread), optimizers):
                    optimizer.zero_grad()
                    loss = each(tokens).float().logsumexp(-1).sum()
                    loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
                    loss.backward()
                    optimizer.step()
                    losses.append(loss)
                torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-4)

        @common_dtensor.with_comms
        def test_dtensor_transformer(self) -> None:
            self.transformer(use_seq_parallel=False)

        @common_dtensor.with_comms
        def test_dtensor_transformer_sequence_parallel(self) -> None:
            self.transformer(use_seq_parallel=True)

        @common_dtensor.with_comms
        def test_functional_collectives(self) -> None:
            mesh = self.build_device_mesh()
            mine = torch.full((4, 3), float(self.rank))
            total = torch.full((4, 3), float(sum(range(RANKS))))
            self.assertEqual(functional.all_reduce(mine, "sum", mesh), total)
            self.assertEqual(functional.all_reduce(mine, "avg", mesh), total / RANKS)
            gathered = functional.all_gather_tensor(mine, 0, mesh)
            self.assertEqual(gathered[::4, 0], torch.arange(RANKS, dtype=torch.float))
            self.assertEqual(functional.all_gather_tensor(mine, 1, mesh)[0, ::3], gathered[::4, 0])
            self.assertEqual(functional.reduce_scatter_tensor(gathered, "sum", 0, mesh), mine * RANKS)
            self.assertEqual(functional.broadcast(mine, 2, mesh), torch.full((4, 3), 2.0))
            coalesced = functional.all_reduce_coalesced([mine, mine[0]], "sum", mesh)
            self.assertEqual(coalesced[1], total[0])
            coalesced = functional.all_gather_into_tensor_coalesced([mine, mine], mesh)
            self.assertEqual(coalesced[1], gathered)
            sizes = [1] * RANKS
            self.assertEqual(functional.all_to_all_single(mine, sizes, sizes, mesh)[:, 0],
                             torch.arange(RANKS, dtype=torch.float))
            self.assertEqual(functional.permute_tensor(mine.view(-1), [1, 2, 3, 0], mesh),
                             torch.full((12,), float((self.rank - 1) % RANKS)))
            leaf = mine.clone().requires_grad_()
            functional.all_gather_tensor_autograd(leaf, 0, mesh).square().sum().backward()
            self.assertEqual(leaf.grad, 2 * RANKS * mine)
            leaf = mine.clone().requires_grad_()
            functional.all_to_all_single_autograd(leaf, sizes, sizes, mesh).square().sum().backward()
            self.assertEqual(leaf.grad, 2 * mine)

    class AnyDevice(MultiProcessTestCase):
        @classmethod
        def _run(cls, rank: int, *arguments, **options) -> None:
            """Not that of FSDPTestMixin, which asks for an accelerator for each rank."""
            MultiProcessTestCase._run.__func__(cls, rank, *arguments, **options)

    class Sharded(forked, AnyDevice, common_fsdp.FSDPTestMixin, VerifyStateDictMixin):
        @property
        def world_size(self) -> int:
            return 2

        @property
        def process_group(self) -> dist.ProcessGroup:
            return dist.distributed_c10d._get_default_group()

        def setUp(self) -> None:
            super().setUp()
            self._spawn_processes()

        def run_test(self, test_name: str, parent_pipe: object) -> None:
            dist.init_process_group(backend, rank=self.rank, world_size=self.world_size,
                                    init_method=f"file://{self.file_name}")
            torch.manual_seed(0)
            super().run_test(test_name, parent_pipe)
            if dist.is_initialized():
                dist.barrier()
                dist.destroy_process_group()

        def parity(self, model: type[nn.Module], **options) -> None:
            for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP,
                             ShardingStrategy.NO_SHARD):
                self._test_fsdp_parity(
                    model, common_fsdp.FSDPInitMode.RECURSIVE, common_fsdp.DEVICEInitMode.DEVICE_BEFORE,
                    sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu"), **options)

        def test_fsdp_nested(self) -> None:
            self.parity(common_fsdp.NestedWrappedModule)

        def test_fsdp_always_wrapped(self) -> None:
            self.parity(common_fsdp.AlwaysWrapNestedWrappedModule)

        def test_fsdp_transformer(self) -> None:
            self.parity(common_fsdp.TransformerWithSharedParams)

        def test_fully_shard_parity(self) -> None:
            torch.manual_seed(3)
            model = common_fsdp.MLPStack(16)
            sharded = copy.deepcopy(model)
            for layer in sharded:
                fully_shard(layer)
            fully_shard(sharded)
            optimizers = [torch.optim.Adam(each.parameters(), lr=1e-2) for each in (model, sharded)]
            for step in range(4):
                torch.manual_seed(10 * step + self.rank)
                batch = torch.randn(4, 16)
                losses = []
                for each, optimizer in zip((model, sharded), optimizers):
                    optimizer.zero_grad()
                    losses.append(each(batch).square().sum())
                    losses[-1].backward()
                    if each is model:
                        for parameter in model.parameters():
                            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                common_fsdp.check_sharded_parity(self, model, sharded)
                for optimizer in optimizers:
                    optimizer.step()
                self.assertEqual(*losses)

        def test_state_dict_of_fsdp(self) -> None:
            torch.manual_seed(3)
            model = common_fsdp.MLP(8)
            wrapped = FullyShardedDataParallel(copy.deepcopy(model), use_orig_params=True,
                                               device_id=torch.device("cpu"))
            optimizers = [torch.optim.Adam(each.parameters(), lr=1e-3) for each in (model, wrapped)]
            batch = torch.ones(2, 8)
            for each, optimizer in zip((model, wrapped), optimizers):
                each(batch).sum().backward()
                optimizer.step()
            theirs, state = get_state_dict(wrapped, optimizers=optimizers[1])
            self._verify_msd(model.state_dict(), theirs)
            self._verify_osd(model, optimizers[0], optimizers[0].state_dict(), state)

        def test_pipeline_stages(self) -> None:
            torch.manual_seed(3)
            layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(2)))
            stage = PipelineStage(copy.deepcopy(layers[self.rank]), self.rank, 2, torch.device("cpu"))
            schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
            batch, target = torch.randn(8, 8), torch.randn(8, 8)
            if self.rank == 0:
                schedule.step(batch)
            else:
                output = schedule.step(target=target)
                self.assertEqual(output, layers(batch))
            nn.functional.mse_loss(layers(batch), target).backward()
            for ours, theirs in zip(stage.submod.parameters(), layers[self.rank].parameters()):
                torch.testing.assert_close(ours.grad, theirs.grad)

    return [Meshes, Sharded]
