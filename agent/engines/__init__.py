"""Where pairs are worked on besides this process: workers on the cores of this machine, or on a cluster."""
