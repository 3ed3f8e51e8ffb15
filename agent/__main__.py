"""Run the command `agent` with `python -m agent`."""

from agent.cli import main

main()
