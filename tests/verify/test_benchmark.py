from glint.verify import benchmark


def test_the_row_is_complete_and_consistent(monkeypatch):
    monkeypatch.setattr(benchmark, "ROUNDS", 2)
    row = benchmark.measure()
    assert row["name"] == "verify"
    assert row["candidates_per_second"] == benchmark.GROUP / row["wall_seconds"]
    assert row["cpu_seconds"] > 0
    assert row["hostile_limit_seconds"] > 0
