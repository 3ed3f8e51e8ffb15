"""What `make bench` runs, each by itself as well (`python -m tests.benchmarks...`, `--help` says more), an hour in all:

- `tests.benchmarks`: what a sandbox costs, next to a bare process and to the plainest use of Docker;
- `tests.benchmarks.calls`: what a call costs, and a pair beside it;
- `tests.benchmarks.throughput`: pairs per second in one process and on Ray, against the least time there could be;
- `tests.benchmarks.memory`: the peak of a large run against that of a small one;
- `tests.benchmarks.reports`: how long a report takes to write and to open.
"""
