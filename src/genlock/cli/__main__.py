"""`python -m genlock.cli`."""

from genlock.cli.main import main

if __name__ == "__main__":
    main()
