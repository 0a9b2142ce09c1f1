from __future__ import annotations

import time

import pytest
from soak.fetches import bomb, outage, run_adversaries, run_fetches


def test_few_fetches_are_exact() -> None:
    """Fetches with one fault in five requests equal the table they are about."""
    tally = run_fetches(12, 0.2, seed=1)
    assert (tally.exact, tally.lost, tally.doubled, tally.invented) == (12, 0, 0, 0)


def test_few_liars_are_left() -> None:
    """A fetch of a service that lies at random ends by itself."""
    count, ended, most = run_adversaries(20, seed=1)
    assert ended == count
    assert most < 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_fetches(seed: int) -> None:
    """In 2,500 fetches of each seed no row is lost, doubled, invented or changed, and faults cost what they must."""
    began = time.monotonic()
    tally = run_fetches(2_500, 0.2, seed)
    print(tally.show(time.monotonic() - began))
    assert (tally.lost, tally.doubled, tally.invented, tally.typed) == (0, 0, 0, 0)
    assert tally.requests <= 1.30 * tally.pages
    assert sum(n for k, n in tally.resumes.items() if k <= 3) >= 0.999 * tally.fetches


@pytest.mark.soak
def test_liars() -> None:
    """Two thousand services that lie at random are all left."""
    count, ended, most = run_adversaries(2_000, seed=0)
    print(f"{count} services that lie: {ended} fetches ended, at most {most:.2f} x the requests that there can be")
    assert ended == count
    assert most < 5


@pytest.mark.soak
def test_outage_and_bomb() -> None:
    """An outage costs at most 40 retries in all, and a bomb at most 100 MiB."""
    retries, grown = outage(), bomb()
    print(f"an outage: {retries} retries in all; a bomb: {grown:.0f} MiB")
    assert retries <= 40
    assert grown <= 100
