"""`tito`, the command line of TinyTorch. `tito --help` lists the commands."""
