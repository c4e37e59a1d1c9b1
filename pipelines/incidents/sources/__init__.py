"""Sources of findings: daily lists, kernel events, verdicts and failures."""
