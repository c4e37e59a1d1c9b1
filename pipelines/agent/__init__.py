"""The agent of a host: reads GPUs and the kernel log, spools, sends.

It runs with three small libraries and none of the models: import nothing heavy here.
"""
