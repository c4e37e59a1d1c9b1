"""The configuration: a TOML file becomes frozen settings; an unknown key is an error."""

CONFIG_VARIABLE = "FOREWARN_CONFIG"
"""Environment variable with the path of the configuration."""
