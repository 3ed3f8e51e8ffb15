"""Run the `agent` command with `python -m agent`."""

from agent.cli import main

main()
