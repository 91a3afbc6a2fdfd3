"""Hand out, collect and grade lessons: a course directory of nbgrader, submissions in a sandbox.

The student's process is asked for values; what they should be, it never learns. `instrument` turns
a test cell into one that sends what the student's code returned, `key` records what the reference
returns in its place, and `judge` compares the two outside. So a student's process may do to itself
what it likes: a pass is earned by the right value and by nothing else.
"""
