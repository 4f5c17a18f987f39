"""The config tree: the only source of defaults, of the JSON schema and of the documented table. Import from its modules."""
