"""How much code a room and a file may have."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.syntax import PACKAGE, code_lines, nodes

# Lines of code (no blank lines, comments or docstrings) that each room may have. Every file counts
# for the room with the longest matching path.
#
# The design wished for less in most rooms. What each has more, and what would be lost without it
# (wished -> now, in lines of code, rounded):
#
#   core      3,500 ->  8,000  Without two thirds of functions/ (2,170) a program that is written
#                              for PyTorch ends in an error: 317 functions and methods, with its
#                              keywords and its messages; slices that are told apart by their
#                              first numbers, places that are seen to be distinct, integers
#                              without ops where nothing is to see ops (55); selection as an op,
#                              so that topk and median need not sort (21);
#                              the formula of normal numbers as one loop (6);
#                              what a mask chooses, without an index to read (21);
#                              arguments that mean nothing and went through in silence (120):
#                              probabilities, deviations, shapes that broadcast by accident, a
#                              dtype that is none, sizes given twice, in traces too;
#                              .data of leaves in traces (2);
#                              what is stored by columns is walked by columns (77);
#                              a backward of few steps without contexts and properties (6);
#                              a diagonal that turns nothing (1);
#                              an inference_mode that enable_grad does not end, although
#                              is_grad_enabled says so (14; graph 2, compiler 1);
#                              gradients of slices that are put together once (65);
#                              linspace a block at a time, eye without a copy (20);
#                              ctc_loss, all rules and what it is made of (181);
#                              cross products (12);
#                              `//=` and the like write (13), alpha that does not overflow (6)
#                              and is of the sum's kind (8), draws with a gradient of 0 (14);
#                              checkpoints, functions and hooks whose gradients can be
#                              differentiated, and are given to all that they are of (117);
#                              diagonals of parts that are views, repeats that are copies (14);
#                              histc by one division, masked_scatter without an index, one_hot (42);
#                              numbers that do not fit into a dtype (56);
#                              plain parameters of SGD in one call (12; optim 6, blocked 16);
#                              a backward taken by a walk, and step by step otherwise (24);
#                              x[0] and x[:, 1:] by NumPy alone where nobody sees ops (29);
#                              Functions and checkpoints of several results, and of what was
#                              computed before (120); indices and equations by lists (35)
#                              x[0] by NumPy alone where it is recorded, too: a step of it took
#                              four times PyTorch's (50); sizes and dims by name (8);
#                              numbers of one type as one array (17);
#                              in-place writes of floats without a new array, where nobody sees
#                              ops: p.add_(g, alpha=-lr) took eight times PyTorch's time (100);
#                              out[t] = h in out's own memory (65), gradients that keep what those
#                              that are asked for read, and no more (40; backends 17: four rows
#                              of a batch at a time); neg_, sqrt_ and the like, clamp_, and small
#                              casts likewise (40); x[i, j] of few elements (13); what is no number
#                              and what float32 has not (10; backends 15: zeros at the speed of
#                              memory);
#                              (nn 29: weights by layer, parametrized values that are kept for a
#                              block; graph 27: Functions' contexts, gradients with a history;
#                              compat 71: NumPy's functions of tensors, names and answers; data 15:
#                              a loader's own sampler; distributions 12: larger batches).
#   replay          0 ->    980  Without programs for what is called often, a function of six ops
#                              takes four times as long on a small array as PyTorch's kernel;
#                              without runs of their ops as one loop (130), norms and losses read
#                              large arrays as often as they have ops; without those of several
#                              results (110), of single gradients (150) and keys by types (90),
#                              backwards of small arrays take up to three times PyTorch's time;
#                              keys of three and four numbers and of shapes, records of views (41);
#                              views that compiled kernels read are in their order (30); copies
#                              and what is detached are written out (2); without whole backwards
#                              as one function (262), a small step is slower than NumPy by hand;
#                              an argument that is no tensor is named (38);
#                              slices that kernels cut by themselves, short steps in several loops,
#                              sums of rows as one (165), and writes to what a first gradient does
#                              not read (35): a small LSTM takes 1.7 times PyTorch's time without;
#                              what a gradient reads is kept, weight gradients are one product (66);
#                              group_norm as an op (17; testing 6, compiler 16);
#                              whole images that are averaged at once (nn 3).
#   nn, optim, training, data, bench
#             4,200 -> 10,500  Without PyTorch's other layers, losses, optimizers and schedules with
#                              all their arguments (nn 5,900, optim 1,940) most models could not be
#                              written down as they are;
#                              what classes say of how they are saved and loaded (115);
#                              masked_fill is imported from where the other masks are (1);
#                              options that mean nothing (18; optim 3);
#                              batch_norm in evaluation and recurrent steps, several
#                              at once, as programs (36); borders and nearest neighbours of all
#                              dimensions in one pass (50),
#                              a gradient of windows written once (7);
#                              runs that go on with the very next batch after an error (36), models
#                              that are looked at, for generation too (15, from compression);
#                              sizes and counts that are checked (20), assert_close of numbers and
#                              nests (compat 33), functional_call of shared weights (core 33),
#                              backends that use a result's memory again (testing 16).
#   jit       1,250 ->  1,500  Without compilation that is deferred to the first call, one linear
#                              layer compiles what nobody asked for; the processor's name for
#                              records of measurements is asked in one place; blocks of the pool
#                              in half of the time (8), their address for a kernel (2); blocks
#                              that leave it (20); small copies (3); threads that the system
#                              refuses (17); heads that are copied apart (45).
#   readable backends
#             1,350 ->  2,100  Without blocked's normalization, pooling, losses and optimizers (330)
#                              a CNN leaves it for NumPy in the middle of a step; NumPy's
#                              reference is a file for each kind of op (70: imports);
#                              ctc_loss by loops to be read, and by NumPy (200); cross products (9);
#                              products of int64 by a BLAS (11);
#                              negative powers of integers (10);
#                              casts that are not asked whether they gave an array (1),
#                              numbers beyond a dtype that are compared (3);
#                              batch_norm of few positions by rows of all channels (137).
#   optimized 3,900 ->  6,400  Without attention (695), products with weights of 8 and 4 bits (670)
#                              and Winograd (275) transformers and CNNs are slower; without sorts,
#                              gathers, running sums and random numbers of its own it leaves such
#                              ops to NumPy; records have names, not positions (120); which rows
#                              share sets of L2, which panels lie in two lines each (30);
#                              Winograd is asked whether it pays (24); blocks of k that fit the
#                              pages (15); all gradients of a layer norm in one pass, and softmax in
#                              place (70); elementwise loops called without numba's dispatch (60;
#                              jit 30); what a tile asks for while it sums up (110), and after it
#                              in a batch of small products (107); products of words by
#                              seven products of halves (237).
#                              Up to eight rows read a few rows of weights at a time (50);
#                              weights in bfloat16, the form they are published in (100);
#                              sums of what a fused loop gives (120); small reductions without
#                              numba's dispatch, cubes (30); elementwise loops and products in
#                              four files each (75); narrow panels of a product and
#                              aligned ones (43); gathers, scatters, scans, softmax and where
#                              extremes are, for small arrays, without numba's dispatch (350),
#                              pooling and sums by index too (92);
#                              the gradient of running products (50), sorts of float64 (40);
#                              floor division and exp2 as vector code (70);
#                              arrays in another order along memory (45; jit 85: copies by tiles
#                              and of what is reversed, slices of turned arrays).
#                              The normal distribution by one exp, for gelu's gradient (30), and
#                              for gelu beside it (3).
#                              Bytes are multiplied without VNNI, too, beside words (70).
#                              Slices are walked along, lines of indices not written out (75).
#                              Small products of a batch, with their shapes taken apart once (25);
#                              small sums of a fused loop and few random numbers without numba's
#                              dispatch (95).
#                              Weights packed once, read ahead, with what follows done on the way:
#                              a model larger than the caches waits for none (180).
#                              ctc_loss as one loop over times and states (190); cross (38).
#                              Selection, integers sorted with their index, running sums (133);
#                              products of int64 (57).
#                              Products of few steps of k ask for C, and divide less (20).
#                              What attention plans, once for each shape (5).
#                              asin, acos, atan and atan2 as vector code (130).
#                              Bisection of many rows, what is drawn by weights and the places of
#                              triangles (80; reference 28); the first few of small arrays and few
#                              elements of a large one (60).
#                              Small linear layers, and their losses, by shape (106).
#                              Loops of one thread, and of slices, without numba's dispatch (55;
#                              jit 26). softmax along another dimension than the last (78).
#                              group_norm in the passes that layer_norm takes (120); log2 and log10
#                              that are whole for powers of 2 and 10 (45; core 6, onnx 6).
#                              Sums and products of every second number by NumPy's loop (16; jit 4).
#                              float16 by the processor's instructions (62); an index that is a line
#                              by slices (75; replay 26); small sorts, and one place of a long row
#                              bit by bit (94); places of what is true, and of triangles (40;
#                              backends 18); counts in four tables (35); running extremes by keys
#                              (26); expanded operands that are not copied (23).
#   distributed
#               850 ->  1,230  Without a view of its bucket a gradient is copied once more (9);
#                              without process groups of their own and a look at who waits for
#                              whom, each backward asks all ranks whether they agree, and sums of
#                              two models can be mixed (141).
#   graph     3,300 ->  5,000  Without recompute (890), which serves PyTorch's graphs too, there is
#                              no trade of time for memory; without attention's pattern (330), which
#                              both worlds share, a step's attention and its backward stay products
#                              and a softmax; the rest is a file for each pass; a tensor that is
#                              left behind by a hook is told apart from others (8); heads that
#                              are merged into the batch, as in PyTorch's traces (58); gradients
#                              that are added to in place, as in eager code (5), and that others
#                              left (8).
#   compiler  3,400 ->  4,765  Without native (2,430) a step runs kernel by kernel from Python;
#                              without memory_order (125) attention's heads are copied five times;
#                              the gradients of a layer norm as one call (90);
#                              an autograd.Function's backward, traced with the forward (138), or
#                              the call op by op (8; graph 29), as where gradients go on to
#                              what an argument was computed from (13; graph 16); a result
#                              that is one tensor twice (graph 6), or a leaf that
#                              requires a gradient (graph 15);
#                              gelu again beside its gradient, so that it is not kept (25);
#                              PyTorch's options of compile (28); places of extremes in
#                              compiled steps (8; optimized 14).
#   onnx      1,100 ->  2,000  Without the imported operators (920) others' models are refused.
#   fx        5,700 -> 12,200  Without capture, convert, passes, profile and diagnosis (7,080) fewer
#                              architectures of transformers run, and none says why not; the zoo
#                              (1,140) is the proof, and recompute (860) a budget of memory;
#                              memory, hooks and settings that a step would ignore are refused (70),
#                              and autocast (40); what a model does for a size of 0 or 1 (212),
#                              and for sizes that it does not take (9);
#                              backwards without the outputs that are unused (24);
#                              pooling of images without a batch (12);
#                              a run of torch.export, the comparison of an optimized module and
#                              its report in files of their own (64: imports and classes);
#                              open sizes of tensors that `*tensors` takes (11),
#                              one small size of two that the model compares (7);
#                              attention's traced backward as one op (83), masks by `where` (12);
#                              what is no module, loss or nest of tensors, other inputs than those
#                              of an example (52), random numbers in eager order, bfloat16 (24;
#                              onnx 8: floor_divide, expm1; graph 14, core 3, optim 2).
#   tito      6,500 ->  8,000  Without lessons (2,900) and workspace (1,865) no notebook is built or
#                              proved; course, ladder, compete and leaderboard have their own
#                              (the last: pseudonyms that look alike, 31; an exit code that says
#                              that processor time was over, 5; course: a submission
#                              whose time is missing, 2, what the system ends, 5; ladder: what a
#                              kill leaves behind, 12).
#                              Names that nobody has, files that cannot be read, lines of IPython,
#                              modules as an entry sees them (tito 20, course 41, compete 42,
#                              leaderboard 8).
#                              Names as they were at a test's place, cells that were deleted or lost
#                              their metadata, regrades that go on, progress (course 82); ports,
#                              events with entries that wait, the final run's machine, stolen
#                              tokens (leaderboard 63); a sandbox that does not start (compete 8).
#                              Arguments by PyTorch's names, hooks of optimizers' steps (framework
#                              150, nn 10, optim 55, compat 4); quantiles of distributions and what
#                              else PyTorch's have (distributions 91); loops that cut their
#                              operands, groups of a row, windows (kernels 229, backends 16).
#                              Attention of frozen models in our own kernel, models that
#                              compute something else where they are compiled (fx 190);
#                              decorators at the top of a body (tito 9); hooks of a compiled
#                              step (graph 4); the cell of an LSTM, whose h depends on its c
#                              (nn 10).
#                              Narrow matrices, for whose rows a loop is not begun anew; integers
#                              and truth values in the kernels of sums and extremes (kernels 253,
#                              jit 129: copies by rows, in place of three other ways); polynomials
#                              of float32, ranks in place of an index, seeds many at a time
#                              (core 69); windows as one view (replay 31, backends 11).
#                              Modules that are called in another layout or with another argument
#                              than at their capture, or whose weights were folded and have changed
#                              (fx 109).
#                              Rows of layer norm by whole vectors, the last masked (kernels 145,
#                              jit 10); sums of what a program gives over short columns, a line of
#                              places in a large array, definitions that cannot be compiled (kernels
#                              103).
#                              Sums with a multiple as one kernel (core 23); constants of a class,
#                              decorators and what a cell changes step by step go into the package,
#                              or are refused by name (tito 30); codes load from their own dtype
#                              only, gradients become zeros in place (nn 9, compression 1).
#                              sinh, cosh and erfc to the ends of their ranges (core 26); an
#                              interrupt in one line from the first moment on, helpers that are not
#                              compiled by name (tito 29); cells that must stay while there are
#                              submissions (course 23); what a worker printed, an entry's own `dot`
#                              (compete 31); the loop of what cannot be compiled (backends 26).
#                              Results past the caches, float64 as float16 (kernels 61, jit 14);
#                              copies that NumPy makes faster are known (jit 13; backends 4:
#                              integers are clipped in one pass). Functions of PyTorch that
#                              from_torch refused (fx 40); buffers that a model assigns, layers,
#                              weights and modes that are others than in the capture, half precision
#                              that PyTorch does not update (fx 119). Parameters that a rank would
#                              train alone, every dtype in every collective (distributed 17);
#                              folders that are missing are said before the work (tito 7); a
#                              loader's seed at its first epoch, no mean of integers (data 11);
#                              special tokens that a file cannot tell apart (text 3).
#                              Loops with several results, and weights that are packed once, in
#                              programs (replay 143, kernels 110, core 12); kernels that are not
#                              compiled see arrays as compiled ones do (jit 20); an archive that
#                              is collected after a newer one (course 12); a batch norm of one value
#                              on all ranks (distributed 6, nn 2).
#                              Ctrl-C in a script that cleans up (tito 57: and inputs of `tito
#                              graph`); what Trainer is given by mistake, states of callbacks that
#                              begin in training (training 38); layers without a quantized form,
#                              before one is replaced (compression 38); parameters from files
#                              (serialization 19); graphs without shapes, passes that are none
#                              (graph 26). Gradients that a model defines itself, buffers whose
#                              old value a backward reads, parameters that are frozen later, an
#                              optimizer's groups, layers that run again in a capture (fx 370).
#                              A warning where a program could not be made (replay 15); kernels by
#                              shape in a file of their own, what is no ordinary number, choices
#                              among whole numbers (optimized 26); erfc in few terms where float32
#                              has no more (core 11); JSON that every reader takes (tito 7);
#                              `from tinytorch.fx import *` (fx 1); functions that use an op whose
#                              definition, a student's, is not compiled (optimized 55, backends 4).
#                              Python 3.13 and 3.14: counts of references (core 4, graph 1), names
#                              in cells, traces beside cProfile and readers that have enough (tito
#                              15), help of layers (nn 5), databases closed (leaderboard 3).
#   2026-12-01 tinytorch 9,351,   ops that cast their operands as one kernel, whole numbers shifted
#              backends 2,912     without conversions, arguments that are no tensors named
#              replay 1,886       by functions and layers (nn 6,451); turned arrays with dimensions
#              jit 2,314          of length 1 (jit). EmbeddingBag and embedding_bag (nn 144). What
#                              a third review of competition and leaderboard found: requests at
#                              once, names, what is limited and logged (leaderboard 64, compete 50,
#                              tito 12).
BUDGETS = {
    "tinytorch": 9_351,
    "tinytorch/replay": 1_886,
    "tinytorch/nn": 6_595,
    "tinytorch/optim": 2_020,
    "tinytorch/training": 864,
    "tinytorch/serialization": 445,
    "tinytorch/distributions": 640,
    "tinytorch/text": 1_875,
    "tinytorch/compression": 1_498,
    "tinytorch/data": 1_036,
    "tinytorch/distributed": 1_258,
    "tinytorch/bench": 800,
    "tinytorch/compat": 1_560,
    "tinytorch/testing": 767,
    "tinytorch/backends": 2_912,
    "tinytorch/backends/optimized": 12_445,
    "tinytorch/jit": 2_314,
    "tinytorch/graph": 4_577,
    "tinytorch/graph/recompute": 890,
    "tinytorch/graph/compiler": 4_853,
    "tinytorch/onnx": 2_105,
    "tinytorch/fx": 13_964,
    "tito": 8_352,
    "tito/course": 5_615,
    "tito/ladder": 715,
    "tito/compete": 2_268,
    "tito/leaderboard": 2_856,
}


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).parts
    prefixes = ("/".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(prefix for prefix in prefixes if prefix in BUDGETS)


def test_each_room_stays_within_its_budget() -> None:
    lines = dict.fromkeys(BUDGETS, 0)
    for package in (PACKAGE, PACKAGE.parent / "tito"):
        for path in package.rglob("*.py"):
            lines[_room(path)] += code_lines(path)
    for room, count in lines.items():
        assert count <= BUDGETS[room], (
            f"{room} has {count} lines of code, and a budget of {BUDGETS[room]}: delete some, or "
            f"raise it in BUDGETS of tests/test_size.py and say why in the commit"
        )


CALLED_BY_CTYPES = PACKAGE / "backends" / "optimized" / "gemm" / "library.py"  # knows no records


def test_signatures_are_formatted() -> None:
    """One parameter a line is the price of a long list, and the reason to pass a NamedTuple."""
    found = []
    for path in [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "tito").rglob("*.py")]:
        text = path.read_text()
        if path == CALLED_BY_CTYPES or "fmt: skip" not in text:
            continue
        lines = text.splitlines()
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                signature = lines[node.lineno - 1 : node.body[0].lineno - 1]
                if any("fmt: skip" in line for line in signature):
                    found.append(f"{path.relative_to(PACKAGE.parent)}: {node.name}")
    assert not found, f"signatures with `# fmt: skip`: {sorted(found)}"


def test_no_file_has_grown_a_second_subject() -> None:
    long = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 520
    }
    assert not long, f"split by subject, below 520 lines each: {long}"
