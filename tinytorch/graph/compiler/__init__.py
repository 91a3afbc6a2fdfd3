"""The compiler: a traced graph becomes one function of generated code.

places.py     where values stand in memory
lower.py      a graph in which every node is one kernel call
schedule.py   the kernel calls in order, and the places that they read and write
python.py     generated Python, for every backend
generate.py   which kind of code runs a graph
calls.py      calling code in place of the traced function
joint.py      forward and backward, each as code (cut.py cuts them apart)
guard.py      whether code fits a call, decided in a microsecond
compiled.py   `tinytorch.compile`
explain.py    what was done, what was not, and how long everything takes
collector.py  the garbage collector, out of the way

native.py           native code: a function that is a list of calls, written by
  native_code.py      its text and the addresses that it names
  native_ops.py       what each op becomes (_products, _groups, _images, _copies, _loops)
  native_phases.py    the order of statements, and which of them threads share
  native_parts.py     how a step is divided
native_ir.py        its text as machine code
native_program.py   calling it with arrays
native_team.py      threads that go through it together
native_crew.py      threads that wait for work
"""

from tinytorch.graph.compiler.compiled import (
    Compiled as Compiled,
    CompiledModule as CompiledModule,
    compile as compile,
)
from tinytorch.graph.compiler.schedule import (
    Schedule as Schedule,
    schedule_graph as schedule_graph,
    schedule_traced as schedule_traced,
)
