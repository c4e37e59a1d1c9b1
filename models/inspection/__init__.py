"""Judgement of measurements: absolute limits, a machine's own baseline, and the fleet."""
