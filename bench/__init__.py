"""Timings and comparisons; nothing here is installed."""
