"""Statistics on arrays: intervals, tests, pass@k and the replication verdict. Nothing here knows of models or files."""
