"""Run as ``python -m kvbudget``."""

from kvbudget.cli import main

if __name__ == "__main__":
    main()
