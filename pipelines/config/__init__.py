"""The configuration: TOML in, frozen settings out; an unknown key is an error."""
