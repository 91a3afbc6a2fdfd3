"""The competition: a backend in one file, measured by a process that it cannot touch.

rules       what an entry's file may contain, read from its syntax tree
entry       the file: its text, hash, event and class
event       what is measured: cases, reference, bound on the error, rules
steps       for events whose work is TinyTorch's: its functions on an entry's kernels
memory      arrays in memory that two processes share
worker      runs inside the sandbox: the entry's code, and nothing that it could lie about
process     the parent's side of a worker: stopped but for the measured call, timed from outside
check       an output against the reference, element by element
load        how much of the machine others use: a gate for events of several threads
match       launches: contestants in turn on the same inputs, every output checked
fingerprint the machine and its software
budget      how many launches and pairs a time buys
result      ratios, intervals, verdicts
measure     a whole match: again where it was noisy, without those that fail
report      a match in a terminal: progress, table, exit code
study       the same code against itself, match after match: how often the harness is right
commands    `tito compete`

Who knows what: clock, random numbers, inputs, reference, check and statistics are the parent's. The
entry's process has its own code, NumPy, numba, and shared memory. See docs/competition.md.
"""
