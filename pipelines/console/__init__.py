"""The console: pages over the API for the people on call."""
