"""Random straight-line programs, eager against compiled.

programs     drawing a program: statements over arguments, parameters and buffers
mutations    what changes in the world between its calls
world        the tensors and layers of a program, and running it there
check        eager and compiled side by side; shrinking what differs
__main__     many thousands: `make fuzz`, or `python -m tests.fuzz --help`
test_fuzz    a few hundred, in the fast suite
"""
