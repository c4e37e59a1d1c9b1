"""Schedulers: the interface of their drivers, and a package for each."""
