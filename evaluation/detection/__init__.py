"""Evaluation of detectors: correct and wrong verdicts, and detection delay."""
