"""What happened in a course: nothing of it is ever lost or rewritten.

audit     who did what, when: a table that is only added to
attempts  each file that was handed in, and what it got each time that it was graded
regrade   grade again, and who gained and lost what by it
requests  what students ask to have looked at again, with a column for the answer
"""
