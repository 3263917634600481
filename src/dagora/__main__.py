"""`python -m dagora`."""

from dagora.cli import main

main()
