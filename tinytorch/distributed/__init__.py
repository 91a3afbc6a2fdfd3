"""Training on several processes, on `torch.distributed` and gloo. Needs the extra `torch`.

heartbeat           which rank has gone
communicator        a process group in which a collective meets its own kind only
deadlock            whether the ranks wait for each other
agreement           whether all ranks make the same call
group               who the processes are; collectives, sends and receives on our tensors
sums                sums over the ranks that gradients pass through
launch              a function on several processes of this machine
buckets             gradients in a few large messages
data_parallel       averages gradients while the backward runs
sharded_optimizer   each rank keeps its share of the optimizer's state
sync_batch_norm     statistics of the whole batch
sampler             each rank's share of the samples
checkpoint          written once, loaded by any number of ranks
ring                all-reduce by sends and receives
tensor_parallel     a linear layer cut over the ranks
pipeline            a model cut into stages
cost                latency and bandwidth: fitted, and computed for many ranks
fake                PyTorch's own sharding at thousands of ranks, without a network
"""

from tinytorch.distributed.checkpoint import load_checkpoint, save_checkpoint
from tinytorch.distributed.cost import Link, fit_link, measure_all_reduce
from tinytorch.distributed.data_parallel import DataParallel, data_parallel
from tinytorch.distributed.group import (
    SentBytes,
    Work,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    destroy_process_group,
    gather_objects,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    isend,
    recv,
    reduce_scatter,
    send,
)
from tinytorch.distributed.launch import launch
from tinytorch.distributed.pipeline import Pipeline, bubble
from tinytorch.distributed.ring import ring_all_reduce
from tinytorch.distributed.sampler import ShardedSampler
from tinytorch.distributed.sharded_optimizer import ShardedOptimizer
from tinytorch.distributed.sync_batch_norm import SyncBatchNorm, convert_sync_batch_norm
from tinytorch.distributed.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from tinytorch.errors import ProcessGroupError

__all__ = [
    "ColumnParallelLinear",
    "DataParallel",
    "Link",
    "Pipeline",
    "ProcessGroupError",
    "RowParallelLinear",
    "SentBytes",
    "ShardedOptimizer",
    "ShardedSampler",
    "SyncBatchNorm",
    "Work",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "bubble",
    "convert_sync_batch_norm",
    "data_parallel",
    "destroy_process_group",
    "fit_link",
    "gather_objects",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_initialized",
    "isend",
    "launch",
    "load_checkpoint",
    "measure_all_reduce",
    "recv",
    "reduce_scatter",
    "ring_all_reduce",
    "save_checkpoint",
    "send",
]
