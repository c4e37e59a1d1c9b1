"""What all pages share: templates, colours, drawings."""
