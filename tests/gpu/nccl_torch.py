#!/usr/bin/env python3
"""usage: nccl_torch.py [PART…]: PyTorch's own ProcessGroupNCCL on whorl's libnccl.so.2, which
LD_PRELOAD puts in front of NVIDIA's: 2 and 4 ranks on one GPU, which NVIDIA's refuses."""

from __future__ import annotations

import machine


def main() -> None:
    if machine.am_rank():
        rank, size, port = machine.rank_and_size()
        import torch.distributed as dist

        import torch_cases

        torch_cases.begin("nccl", rank, size, port)
        machine.do_parts(torch_cases.CASES)
        machine.check_loaded("libnccl")
        dist.destroy_process_group()
        return
    machine.need_device()
    torch = machine.need_torch("ProcessGroupNCCL")
    if not torch.distributed.is_nccl_available():
        machine.skip("this PyTorch was built without NCCL")
    library = machine.need_library("libnccl.so.2")
    import torch_cases

    results = machine.run_parts(machine.choose(torch_cases.CASES), (2, 4), torch_cases.new_store,
                                machine.environment(preload=library))
    machine.finish(results)


if __name__ == "__main__":
    main()
