"""Statistics of labels: intervals, paired tests, agreement, calibration, estimates from samples."""
