"""Engines that annotate pairs outside this process, in workers on this machine or on a cluster."""
