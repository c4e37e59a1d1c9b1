"""Score of the response: GPU-hours saved and lost, with intervals."""
