"""What all our HTTP services have in common: bounds, tokens, bodies, refusals, figures."""
