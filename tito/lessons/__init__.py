"""Lessons: `modules/NN_slug/lesson.md` to notebooks and pages. `tito lessons --help`.

parse    lesson.md -> Lesson                          model.py, options.py, practice.py, parse.py
source   find definitions of the package              source.py, names.py
cells    Lesson + package -> cells                    exercise.py, markup.py, cells.py
build    cells -> notebooks, page                     notebook.py, pages.py, build.py, watch.py
check    everything that is wrong, with its line      check.py, form.py
splice   a student's cell -> their package            magic.py, splice.py, needed.py
prove    that grading grades                          mistake.py, wrong.py, proof.py, prove.py
mutants  small changes to a solution lose points      mutate.py, mutants.py, mutants_child.py
"""
