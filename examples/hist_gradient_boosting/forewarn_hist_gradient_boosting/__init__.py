"""A plug-in model for forewarn."""
