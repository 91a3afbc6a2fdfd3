"""`tito ladder` and `tito backend compare`: one training step, on one backend after another.

tiers.py      the table of what it runs on: add a line to add a tier
steps.py      the table of what is trained: add an entry to add a step
child.py      the process in which a tier runs; student's code runs nowhere else
worker.py     the parent's side of such a process
measure.py    same numbers as the reference? then times, interleaved
report.py     the table, and the sentences below it
history.py    what was measured before, in .tito/ladder.jsonl
drawing.py    the picture, ladder.svg and ladder.png
commands.py   the command
"""
