"""`python -m tito`"""

from tito import leave_out_workspaces

leave_out_workspaces()

from tito.cli import main  # noqa: E402

main()
