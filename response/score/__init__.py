"""The score of acting: hours saved and lost, with intervals."""
