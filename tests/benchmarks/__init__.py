"""What a sandbox costs, next to a bare process and to the plainest use of Docker: `make bench`."""
