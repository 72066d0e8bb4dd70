"""Data, tensor and pipeline parallelism at once: a 2 x 2 x 2 mesh of eight ranks, each dimension with
process groups of its own."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import models
from case import Case, Training, World
from systems import pipeline
from systems.tensor_parallel import split_block

REPLICAS = 2


def three(world: World) -> Training:
    model = models.transformer()
    if world.alone:
        return pipeline.whole(model, REPLICAS)
    mesh = init_device_mesh("cpu", (2, REPLICAS, 2), mesh_dim_names=("pp", "dp", "tp"))
    stage_index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    part = pipeline.cut(model, 2)[stage_index]
    for layer in part:
        if isinstance(layer, models.Block):
            split_block(layer, mesh["tp"], sequence=False)
            fully_shard(layer, mesh=mesh["dp"])
    fully_shard(part, mesh=mesh["dp"])
    stage = PipelineStage(part, stage_index, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, pipeline.MICROBATCHES, loss_fn=models.text_loss)
    return pipeline.trained(schedule, part, stage_index == 0, stage_index == 1, [replica], REPLICAS)


CASES = [Case("three_dimensions", 8, three, steps=10, bound=1e-4, alone_bound=1e-3, seconds=120)]
