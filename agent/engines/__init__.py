"""Engines that annotate pairs outside this process: workers on this machine or on a cluster."""
