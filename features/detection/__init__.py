"""Turns the machine metrics of a task into scaled arrays on one time grid."""
