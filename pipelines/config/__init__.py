"""The configuration: a TOML file becomes frozen settings; an unknown key is an error."""
