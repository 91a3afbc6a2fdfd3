"""Hand out, collect and grade lessons: a course directory of nbgrader, submissions in a sandbox.

`exam` runs and judges one notebook; `students` knows who they are, when they handed in and what
counts; `history` keeps attempts, results and who did what; `similar` shows pairs of solutions that
are like each other. The files beside those rooms are the steps of nbgrader, from `generate` to
`export`.
"""
