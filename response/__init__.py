"""Pure decisions: findings, state and a moment in, actions out. Nothing decides yet."""
