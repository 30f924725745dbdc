"""`python -m alray`: the command line without the console script."""

from alray.cli.main import main

main()
