"""`python -m specgrad` is the `specgrad` command."""

import specgrad_command

if __name__ == "__main__":
    specgrad_command.main()
