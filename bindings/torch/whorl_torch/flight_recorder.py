"""Converts records of the last operations for PyTorch's flight recorder analyser.

    python -m whorl_torch.flight_recorder flight.*.json -o traces
    torchfrtrace traces -p rank_

The files are those of WHORL_FLIGHT_FILE, or what `whorl-stat --json` has printed on each host, for the ranks of one
communicator, whose ranks the analyser takes for those of the job. It wants the records of all ranks; where one
cannot write any more, whorl-stat can.
"""
import argparse
import json
import pathlib
import pickle
import sys

FORMAT = "whorl-flight-recorder"
VERSION = "2.10"  # of the analyser's format: its fields for collectives and for sends and receives
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "_all_gather_base",
    "allgatherv": "all_gather_v",
    "reducescatter": "_reduce_scatter_base",
    "reducescatterv": "reduce_scatter_v",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
}
# Collectives whose input, or output, has a block for each rank.
MANY_IN = {"reducescatter", "alltoall"}
MANY_OUT = {"allgather", "alltoall"}
DTYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char",
          "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long", "bool": "Bool"}


def profiling_name(operation, rank):
    """Returns the operation's name in the form that the analyser knows, which wants the name of a known library."""
    name = operation["operation"]
    if name in ("send", "sendv"):
        return f"gloo:send {rank}->{operation['peer']}"
    if name in ("recv", "recvv"):
        return f"gloo:recv {rank}<-{operation['peer']}"
    return "gloo:" + NAMES.get(name, name)


def entry(operation, dump):
    """Returns one operation as an entry of the analyser's format."""
    name, count, nranks = operation["operation"], operation["count"], dump["nranks"]
    transfer = "peer" in operation
    dtype = DTYPES.get(operation["datatype"], operation["datatype"])
    completed = operation["state"] == "completed"
    return {
        "record_id": operation["number"],
        "pg_id": 0,
        "process_group": (dump["communicator"], dump["name"]),
        "collective_seq_id": 0 if transfer else operation["sequence"],
        "p2p_seq_id": operation["sequence"] if transfer else 0,
        "op_id": operation["number"],
        "is_p2p": transfer,
        "profiling_name": profiling_name(operation, dump["rank"]),
        "time_created_ns": operation["began_ns"],
        "time_discovered_started_ns": operation["began_ns"],
        "time_discovered_completed_ns": operation.get("ended_ns"),
        "input_sizes": [[count * (nranks if name in MANY_IN else 1)]],
        "output_sizes": [[count * (nranks if name in MANY_OUT else 1)]],
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
        "state": operation["state"],
        "retired": completed,
        "timeout_ms": 0,
        "frames": [],
    }


def convert(dump):
    """Returns the analyser's trace of one rank."""
    known = [operation for operation in dump["operations"] if "operation" in operation]
    return {
        "version": VERSION,
        "pg_config": {dump["communicator"]: {"name": dump["communicator"], "desc": dump["name"],
                                             "ranks": str(list(range(dump["nranks"])))}},
        "entries": [entry(operation, dump) for operation in known],
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m whorl_torch.flight_recorder", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="files with records")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="folder for the traces")
    parser.add_argument("-c", "--communicator", default="", help="begin of the number of the communicator")
    options = parser.parse_args(arguments)
    dumps = []
    for file in options.files:
        try:
            dump = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            sys.exit(f"{file}: {error}")
        for one in dump if isinstance(dump, list) else [dump]:
            if not isinstance(one, dict) or one.get("format") != FORMAT:
                sys.exit(f"{file}: neither a file of WHORL_FLIGHT_FILE nor the output of whorl-stat --json")
            dumps.append(one)
    there = sorted({dump["communicator"] for dump in dumps})
    dumps = [dump for dump in dumps if dump["communicator"].startswith(options.communicator)]
    chosen = {dump["communicator"] for dump in dumps}
    if len(chosen) != 1:
        sys.exit(f"--communicator must choose one communicator of these: {', '.join(there)}")
    if len({dump["rank"] for dump in dumps}) != len(dumps):
        sys.exit("there are two records of one rank: pass files of one moment")
    options.output.mkdir(parents=True, exist_ok=True)
    for dump in dumps:
        with open(options.output / f"rank_{dump['rank']}", "wb") as out:
            pickle.dump(convert(dump), out)
    print(f"{len(dumps)} traces in {options.output}; next: torchfrtrace {options.output} -p rank_")


if __name__ == "__main__":
    main()
