"""Random straight-line programs, eager against compiled.

programs     drawing a program: statements over arguments, parameters and buffers
world        the tensors of a program, and running it in them
check        eager and compiled side by side; shrinking what differs
__main__     many thousands: `make fuzz`, or `python -m tests.fuzz --help`
test_fuzz    a few hundred, in the fast suite
"""
