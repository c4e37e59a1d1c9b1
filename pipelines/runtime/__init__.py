"""What every room uses: the clock, timestamps, progress, alerts."""
