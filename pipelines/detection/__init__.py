"""`forewarn detect`: fits detectors, judges running tasks, and plots verdicts."""
