"""The student's workspace: notebooks to write in, and a package in which their code runs.

    DIR/02_tensor.ipynb      a lesson, to be written in (or 02_tensor.py, the same as plain Python)
    DIR/tinytorch/           the reference, with each definition that the student completed in place
                             of ours; made by tito, and what `import tinytorch` finds in DIR
    DIR/backends/mine.py     a backend of the student's, begun by tito and theirs from then on
    DIR/.tito/state.json     what was begun, which hints were shown, how the tests went
    DIR/.tito/completed/     the student's definitions, one file a module
    DIR/.tito/backups/       files that were about to be replaced

No code of the student runs in the process of tito: their files are read as text, and run in a fresh
process under limits.
"""
