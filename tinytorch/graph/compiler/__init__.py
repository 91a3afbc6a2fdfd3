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
