"""Models as text: TOML, units and expressions, tables of parameters, the schema, writing."""
