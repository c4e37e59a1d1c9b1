"""Shared by all pages: templates, colours, drawings."""
