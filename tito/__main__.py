"""`python -m tito`"""

from tito.cli import main

main()
