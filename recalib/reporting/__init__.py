"""Reports and plots of calibration."""
