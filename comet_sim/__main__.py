"""`python -m comet_sim` is the command line."""

from comet_sim.cli import main

if __name__ == "__main__":
    main()
