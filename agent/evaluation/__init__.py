"""What runs are worth: labels scored, variants compared, executions repeated."""
