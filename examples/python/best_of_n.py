"""Best of N: one sandbox is prepared, forked in the middle of its thought, and every child goes on in another way.

What was prepared is only in the memory of a running interpreter; a fork has it too. Each branch is a machine of its own: what
one does, even when it fails or never ends, the others do not see. The best is kept, the others are deleted.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_…
    python best_of_n.py
"""

import os

from pandastack import Candidate, PandaStack, Sandbox

TEMPLATE = os.environ.get("PANDASTACK_TEMPLATE", "code-interpreter")

# A salesman visits 24 cities; the shorter the tour, the better. This takes no time, but think of hours of work.
PREPARE = """
import itertools, math, random
chance = random.Random(7)
cities = [(chance.random(), chance.random()) for _ in range(24)]
tour = list(range(24))

def length(tour):
    return sum(math.dist(cities[a], cities[b]) for a, b in zip(tour, tour[1:] + tour[:1]))
"""

NEAREST = """
rest = set(tour[1:])
tour = tour[:1]
while rest:
    tour.append(min(rest, key=lambda city: math.dist(cities[tour[-1]], cities[city])))
    rest.remove(tour[-1])
"""

UNCROSS = """
better = True
while better:
    better = False
    for a, b in itertools.combinations(range(1, 25), 2):
        other = tour[:a] + tour[a:b][::-1] + tour[b:]
        if length(other) < length(tour) - 1e-9:
            tour, better = other, True
"""

STRATEGIES = {
    "nearest city next": NEAREST,
    "nearest, uncrossed": NEAREST + UNCROSS,
    "every order": "tour = list(min(itertools.permutations(tour), key=length))",
    "a mistake": "tour.shuffle()",
}


def think(sandbox: Sandbox, code: str = "", timeout_seconds: float = 60) -> float:
    """Goes on in the interpreter that a sandbox has; how long the tour is then."""
    ran = sandbox.run_code(f"{code}\nlength(tour)", timeout_seconds=timeout_seconds)
    if ran.error or ran.text is None:
        raise RuntimeError((ran.error or "no result").strip().splitlines()[-1])
    return float(ran.text)


def candidate(label: str, code: str) -> Candidate:
    """A way to go on: it is given the sandbox of its branch."""
    # To try every order would take longer than the world is old.
    seconds = 3 if label == "every order" else 60
    return Candidate.call(label, lambda branch: think(branch, code, seconds))


def main() -> None:
    """Prepares, forks, compares."""
    with (
        PandaStack() as client,
        client.sandboxes.create(template=TEMPLATE, ttl_seconds=600, metadata={"example": "best-of-n"}) as parent,
    ):
        parent.run_code(PREPARE)
        before = think(parent)
        print(f"prepared: {before:.3f}")

        found = parent.explore(
            [candidate(label, code) for label, code in STRATEGIES.items()],
            score_fn=lambda branch, outcome: outcome.value,
            select="min",
        )
        for outcome in found.outcomes:
            print(f"{outcome.label:<20} {outcome.error or f'{outcome.score:.3f}'}")

        # The winner is a sandbox like any other, and still has its tour in memory. The parent knows nothing of it.
        with found.winner as winner:
            print(f"kept: {found.winner_outcome.label}, {think(winner):.3f}")
            print(f"of {len(found.outcomes)} branches {len(client.sandboxes.list(parent=parent.id))} is left")
        print(f"the parent still has {think(parent):.3f}")


if __name__ == "__main__":
    main()
