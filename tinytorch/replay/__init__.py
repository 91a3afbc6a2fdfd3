"""Functions made of many ops, called again and again: their kernels in a row, without the rest.

    norm = replayed(lambda x: sqrt(sum(x * x)))

A call runs three ops, each through `dispatch.apply`; on a small array most of the time goes into
what is between the kernels. Once the function has been called often with the same shapes, dtypes
and numbers, it runs in a mode that writes down which kernels it calls, a trace. From then on a
*program* calls these alone:

    def program(x0):
        t1 = k1(x0)
        return k2(t1)

Where a gradient is wanted, the ops that `grad` applies are traced too, and make a second program.
Results are the same, bit for bit. Of a gradient the last bit may differ where a tensor is read in
the function several times and elsewhere, too: what comes from the function is added up first; and
where it is the sum of products, which are one.

The function itself runs, as ever, where something could see the difference: in any mode (a trace,
a profile), for gradients that are differentiated again, on a backend of a user, and wherever its
trace would not hold for the next call: it reads values, draws random numbers, writes in place, or
returns its argument. Where it only checks values, the program has a guard (`holds`).

    trace      a mode that writes down ops; guards
    products   sums of the gradients of one weight, as one product
    packing    a weight of several products, packed once
    fusion     runs of elementwise ops, and sums of them, as one loop
    joining    loops over the same elements as one, with several results
    program    a trace as a function of arrays
    calls      what a call is known by
    gradients  the second program; results that are several tensors
    no_tensor  what it means that an argument lacks an attribute
    function   `replayed`: counts calls, runs programs, records their gradients
    steps      the gradients of single ops
    walks      a whole backward, of such programs

Source: V. Bala, E. Duesterwald, S. Banerjia, "Dynamo: a transparent dynamic optimization system",
2000 (traces of what is hot).
"""

from tinytorch.replay.function import make_program, programs_at_once, replay_all, replayed
from tinytorch.replay.trace import NotReplayable, holds, keep, must_run

__all__ = [
    "NotReplayable",
    "holds",
    "keep",
    "make_program",
    "must_run",
    "programs_at_once",
    "replay_all",
    "replayed",
]
