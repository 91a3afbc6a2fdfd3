"""The zoo: every architecture at hand, small, through everything that the bridge does.

catalogue.py   which architectures there are, and how each is built
torchvision_operators.py   what torchvision needs beside a PyTorch without CUDA
subject.py     a model with its inputs and its eager results: what all else is compared with
verdict.py     bit-equal, within eager's own error, refused, WRONG, crash
stages.py      what a model goes through, one function each
child.py       one model in a process of its own, with limits
runner.py      many models: resumable, a JSON line each
page.py        the table, and docs/zoo.md
command.py     what `tito fx zoo` runs and prints
"""
