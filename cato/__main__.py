"""`python -m cato`."""

from cato.cli import main

if __name__ == "__main__":
    main()
