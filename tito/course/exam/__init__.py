"""One notebook in a sandbox: asked for values there, judged here.

The student's process is asked for values; what they should be, it never learns. `instrument` turns
a test cell into one that sends what the student's code returned, `key` records what the reference
returns in its place, and `judge` compares the two outside. So a student's process may do to itself
what it likes: a pass is earned by the right value and by nothing else.

job          a notebook to run, and what came of it
values       values as JSON, to and from a process that is not trusted
receive      messages from such a process: bounded in size, in number and in time
harness      the kernel in which a submission runs; a script inside the sandbox
run          one notebook, as often as it takes to hear what every cell does
pool         many jobs at once, on this machine or on a cluster
taint        which expressions of a test depend on the student's code
instrument   a test cell, rewritten to send its values
judge        what a submission claims beside what the reference claims
judge_child  the process in which verdicts are found
jury         verdicts with limits and a deadline
key          what the reference sends
"""
