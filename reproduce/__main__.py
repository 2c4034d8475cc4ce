"""`python -m reproduce STUDY …`."""

from reproduce.cli import main

if __name__ == "__main__":
    main()
