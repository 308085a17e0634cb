"""``python -m tutelage`` is the command line."""

from tutelage.cli import main

main()
