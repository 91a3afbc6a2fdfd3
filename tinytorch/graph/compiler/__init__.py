"""The compiler: a traced graph becomes one function of generated code.

memory_order  where a value is stored so that nobody has to copy it
lower       a graph in which every node is one kernel call
schedule    the kernel calls in order, and the memory that they read and write
python      generated Python, for every backend
native      generated machine code, for `optimized`
timing      how long each step of compiling takes
generate    which kind of code runs a graph
partition   a joint graph as a forward and a backward graph
joint_graph a forward and its gradients as one graph
joint       forward and backward, each as code
guard       whether code fits a call, decided in a microsecond
calls       calling code in place of the traced function
explain     what was done, what was not, and how long everything takes
compiled    `tinytorch.compile`
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
