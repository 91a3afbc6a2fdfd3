"""Passes for graphs of torch.fx alone, a file each. Importing this makes them known by name."""

from tinytorch.fx.passes.attention import AttentionPattern as AttentionPattern
from tinytorch.fx.passes.attention_kernel import AttentionKernel as AttentionKernel
from tinytorch.fx.passes.backward_order import BackwardOrder as BackwardOrder
from tinytorch.fx.passes.channels_last import ChannelsLast as ChannelsLast
from tinytorch.fx.passes.checkpoint import Checkpoint as Checkpoint
from tinytorch.fx.passes.chunked_cross_entropy import ChunkedCrossEntropy as ChunkedCrossEntropy
from tinytorch.fx.passes.conv_bn import ConvBatchNorm as ConvBatchNorm
from tinytorch.fx.passes.dead_statistics import DeadStatistics as DeadStatistics
from tinytorch.fx.passes.early_update import EarlyUpdate as EarlyUpdate
from tinytorch.fx.passes.flat_linear import FlatLinears as FlatLinears
from tinytorch.fx.passes.gelu import Gelu as Gelu
from tinytorch.fx.passes.gradients_in_place import GradientsInPlace as GradientsInPlace
from tinytorch.fx.passes.no_ops import NoOps as NoOps
from tinytorch.fx.passes.onednn import OneDnn as OneDnn
from tinytorch.fx.passes.prepacked_linear import PrepackedLinears as PrepackedLinears
from tinytorch.fx.passes.reinplace import Reinplace as Reinplace
from tinytorch.fx.passes.winograd import Winograd as Winograd
