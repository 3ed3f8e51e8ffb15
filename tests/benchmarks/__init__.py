"""The benchmarks of `make bench`, which take an hour in total. Each is a command of its own (see `--help`):

- `tests.benchmarks`: the cost of a sandbox, compared with a bare process and a naive use of Docker;
- `tests.benchmarks.calls`: the overhead of a model call and of a pair;
- `tests.benchmarks.throughput`: pairs per second in one process and on Ray, compared with the ideal time;
- `tests.benchmarks.memory`: the peak memory of a large run, compared with a small one;
- `tests.benchmarks.reports`: the time to write and open a report;
- `tests.benchmarks.clusters`: the throughput and memory of clustering code;
- `tests.benchmarks.candidates`: the time and peak memory of proposing candidate pairs with stored vectors;
- `tests.benchmarks.guarantees`: the coverage of certificates and calibrations for runs with known errors;
- `tests.benchmarks.search_scores`: the coverage of search scores that are corrected by reviews.
"""
