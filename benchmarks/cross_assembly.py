"""Our vector kernels as assembly for processors that are not here; and the innermost loop of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core.llvm_bindings import create_pass_builder

from tinytorch.backends.optimized.gemm.micro_kernel import Tile, emit_gemm_tile
from tinytorch.backends.optimized.quantized.code_tile import emit_code_tile
from tinytorch.backends.optimized.quantized.dots import Form
from tinytorch.jit.cpu import VectorUnit
from tinytorch.jit.llvm import I64, Value, VectorEmitter
from tinytorch.jit.operands import Matrix, Rows, Stack

MULTIPLY_ADD = re.compile(r"\s(fmla|smlal2?|vfn?m(add|sub)\d+ps|vpmaddubsw|vpmaddwd|vpdp\w+)\s")
LABEL = re.compile(r"([.\w$]+):")
BRANCH = re.compile(r"\s*(?:j\w+|b\.\w+|cbn?z|tbn?z)\s.*?([.\w$]+)$")  # x86's and ARM's

Emit = Callable[[VectorEmitter, Sequence[Value]], None]


def triple(unit: VectorUnit) -> str:
    """LLVM's name of the machines that have a vector unit."""
    return f"{'aarch64' if unit.name == 'neon' else 'x86_64'}-unknown-linux-gnu"


def assembly(emit: Emit, arguments: int, cpu: str, features: str, unit: VectorUnit) -> str:
    """The assembly of a function of so many integers, as numba compiles emitted kernels.

    Args:
        emit: emits the function's body; from its arguments.
        cpu: LLVM's name of the processor.
        features: more or fewer instruction sets than that processor has, "+avx2,-avx512f".
        unit: whose vectors are emitted.
    """
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = ir.Module(name="kernel")
    module.triple = triple(unit)
    kind = ir.FunctionType(ir.VoidType(), [I64] * arguments)
    function = ir.Function(module, kind, name="kernel")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(VectorEmitter(builder, types.float32, unit.register_bytes), function.args)
    builder.ret_void()
    target = binding.Target.from_triple(module.triple)
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3)
    parsed = binding.parse_assembly(str(module))
    parsed.data_layout = str(machine.target_data)
    passes: Any = create_pass_builder(machine, opt=1, loop_vectorize=False, slp_vectorize=False)
    passes.getModulePassManager().run(parsed, passes)
    text: str = machine.emit_assembly(parsed)
    return text


def emit_tile(rows: int, vectors: int) -> Emit:
    """A whole tile of the GEMM micro-kernel; of 16 arguments."""

    def emit(e: VectorEmitter, given: Sequence[Value]) -> None:
        columns, k, a, row, column, b, ldb, start, ld_start, c, ldc, relu, *ahead, count = given
        operands = Matrix(a, row, column), Rows(b, ldb), Rows(start, ld_start), Rows(c, ldc)
        tile = Tile(columns, k, *operands, relu, Stack(*ahead), count)
        emit_gemm_tile(e, tile, rows, vectors)

    return emit


def emit_codes(form: Form, rows: int, vectors: int) -> Emit:
    """A whole tile of a product of codes; of 6 arguments."""

    def emit(e: VectorEmitter, given: Sequence[Value]) -> None:
        steps, a, lda, b, c, ldc = given
        emit_code_tile(e, form, (rows, vectors), steps, Rows(a, lda), b, Rows(c, ldc))

    return emit


def inner_loop(text: str) -> list[str]:
    """The loop without a branch inside that has the most multiply-adds, its lines in order.

    Raises:
        LookupError: no loop has any.

    Example:
        >>> inner_loop("loop:\\n\\tfmla v0.4s, v1.4s, v2.4s\\n\\tb.gt loop\\n")
        ['\\tfmla v0.4s, v1.4s, v2.4s', '\\tb.gt loop']
    """
    best: list[str] = []
    label, body = "", list[str]()
    for line in text.splitlines():
        if found := LABEL.match(line):
            label, body = found[1], []
            continue
        if not line.strip() or line.lstrip().startswith((".", "#", "//")):
            continue  # directives and comments
        body.append(line)
        branch = BRANCH.match(line)
        if branch is None:
            continue
        if branch[1] == label and len(multiply_adds(body)) > len(multiply_adds(best)):
            best = body
        label, body = "", []
    if not best:
        raise LookupError("no loop of this assembly has a multiply-add")
    return best


def multiply_adds(lines: Sequence[str]) -> list[str]:
    """Those of the instructions that multiply and add vectors."""
    return [line for line in lines if MULTIPLY_ADD.search(line)]
