"""Who the students are, when they have handed in, and what of their points counts.

policy      deadlines, free late days and the penalty, from the course's settings
extensions  another deadline for one student
sheet       a table of CSV as it came, and cells that no spreadsheet computes
columns     what a platform's table says of people and marks
canvas      its gradebook
moodle      an assignment's grading worksheet
gradescope  its roster, and its table of grades
platforms   which of them a table is of
identity    who is meant by what platforms write
marks       raw points, what lateness costs, and what counts
roster      students in and marks out, in a platform's own file
"""
