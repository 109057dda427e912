"""`python -m specgrad` is the `specgrad` command."""

from .cli.main import main

if __name__ == "__main__":
    main()
