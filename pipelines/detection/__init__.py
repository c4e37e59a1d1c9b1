"""Fit, run and watch: machine metrics of running tasks in, verdicts and pictures out."""
