"""Ids from `ai_comms/counters`, on which shell scripts count as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from genlock.core.ids import format_root
from genlock.errors import CounterExhausted, StoreCorrupt, StoreUnavailable
from genlock.stores.folder.layouts import spool_counters
from genlock.stores.folder.layouts.spool_counters import SpoolCounters
from tests.folder.orchestra import Orchestra

TAKE = (
    "import sys, time; from pathlib import Path\n"
    "from genlock.core.ids import format_root\n"
    "from genlock.stores.folder.layouts.spool_counters import SpoolCounters\n"
    "root, count = Path(sys.argv[1]), int(sys.argv[2])\n"
    "(root / 'genlock').mkdir(exist_ok=True)\n"
    "counters = SpoolCounters(root / 'counters', root / 'genlock' / 'counters')\n"
    "for _ in range(count): print(format_root(counters.take('global', 1)))\n"
)
"""Takes ids in another process, each for itself."""


@pytest.fixture
def counters(orchestra: Orchestra) -> SpoolCounters:
    (orchestra.comms / "genlock").mkdir()
    return SpoolCounters(orchestra.comms / "counters", orchestra.comms / "genlock" / "counters")


def counter(orchestra: Orchestra, prefix: str = "global") -> Path:
    return orchestra.comms / "counters" / f"{prefix}.NextId"


def ours(orchestra: Orchestra, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TAKE, str(orchestra.comms), str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def theirs(orchestra: Orchestra, count: int) -> subprocess.Popen[str]:
    return orchestra.shell(f"for n in $(seq {count}); do claim_next_id; done")


def ids_of(process: subprocess.Popen[str]) -> list[str]:
    return process.communicate(timeout=300)[0].split()


def test_next_id_takes_the_next_id_of_the_scripts(orchestra: Orchestra) -> None:
    fleet = orchestra.connect()
    assert orchestra.run("init_counter global; claim_next_id; claim_next_id").split() == [
        "0001",
        "0002",
    ]
    assert fleet.next_id() == "0003"
    assert orchestra.run("claim_next_id").split() == ["0004"]
    assert fleet.next_id(count=2) == ("0005", "0006")
    assert counter(orchestra).read_text() == "0007\n"
    assert fleet.next_id(parent="0003") == "0003_t1"
    assert counter(orchestra, "0003").read_text() == "0002\n"
    assert sorted(path.name for path in (orchestra.comms / "counters").iterdir()) == [
        "0003.NextId",
        "global.NextId",
    ]


def test_next_id_passes_over_ids_that_a_script_has_used(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    orchestra.add("0002")
    assert orchestra.connect().next_id() == "0003"


def test_spawned_subtasks_and_those_of_scripts_have_ids_of_one_counter(
    orchestra: Orchestra,
) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    assert fleet.next_id(parent="0001") == "0001_t1"
    claim = fleet.claim_task(task_id="0001").claim
    assert claim is not None
    made = fleet.spawn_subtasks(
        task_id="0001", generation=claim.generation, subtasks=["one", "two"]
    )
    assert made.children == ("0001_t2", "0001_t3")
    assert counter(orchestra, "0001").read_text() == "0004\n"


def test_zero_of_the_scripts_is_no_id(counters: SpoolCounters, orchestra: Orchestra) -> None:
    (orchestra.comms / "counters").mkdir()
    counter(orchestra).write_text("0000\n")
    assert counters.take("global", 1) == 1


def test_counter_goes_on_with_letters(counters: SpoolCounters, orchestra: Orchestra) -> None:
    (orchestra.comms / "counters").mkdir()
    counter(orchestra).write_text("9999\n")
    assert format_root(counters.take("global", 1)) == "9999"
    assert counter(orchestra).read_text() == "A000\n"
    assert format_root(counters.take("global", 1)) == "A000"
    counter(orchestra).write_text("ZZZ9\n")
    with pytest.raises(CounterExhausted):
        counters.take("global", 1)


def test_counter_that_ran_back_does_not_give_an_id_twice(
    counters: SpoolCounters, orchestra: Orchestra
) -> None:
    assert [counters.take("global", 1) for _ in range(5)] == [1, 2, 3, 4, 5]
    counter(orchestra).write_text("0000\n")  # a script that did not see it has begun again
    assert counters.take("global", 1) == 6
    assert counter(orchestra).read_text() == "0007\n"


def test_counter_that_says_no_number_is_named(
    counters: SpoolCounters, orchestra: Orchestra
) -> None:
    (orchestra.comms / "counters").mkdir()
    counter(orchestra).write_text("soon\n")
    with pytest.raises(StoreCorrupt, match=r"global\.NextId says 'soon'"):
        counters.take("global", 1)


def test_counter_whose_claimer_died_is_recovered(
    counters: SpoolCounters, orchestra: Orchestra
) -> None:
    script = orchestra.shell(
        "claim_next_id; claim_next_id; increment_hybrid_base36() { kill -9 $$; exit; }; claim_next_id"
    )
    assert script.communicate(timeout=60)[0].split() == ["0000", "0001"]
    assert [path.name for path in (orchestra.comms / "counters").iterdir()] == [
        f"global.NextId.claimed.{script.pid}"
    ]
    assert counters.take("global", 1) == 3  # it may have used the number that it had
    assert [path.name for path in (orchestra.comms / "counters").iterdir()] == ["global.NextId"]
    assert orchestra.run("claim_next_id").split() == ["0004"]


def test_counter_that_a_live_script_has_is_waited_for(
    counters: SpoolCounters, orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = orchestra.process()
    (orchestra.comms / "counters").mkdir()
    claimed = counter(orchestra).with_name(f"global.NextId.claimed.{process.pid}")
    claimed.write_text("0007\n")
    monkeypatch.setattr(spool_counters, "_WAIT_SECONDS", 0.2)
    with pytest.raises(StoreUnavailable, match=f"process {process.pid} has "):
        counters.take("global", 1)
    claimed.rename(counter(orchestra))
    assert counters.take("global", 1) == 7


@pytest.mark.parametrize("failpoint", ["counter.begins", "counter.prepared", "counter.swapped"])
def test_taking_that_is_killed_leaves_a_counter_that_goes_on(
    counters: SpoolCounters, orchestra: Orchestra, failpoint: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKE, str(orchestra.comms), "1"],
        env=os.environ | {"GENLOCK_FAILPOINT": failpoint},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert counters.take("global", 1) == {"counter.swapped": 2}.get(failpoint, 1)


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_counters, "exchanged", lambda one, other: False)


def test_counter_is_renamed_where_files_cannot_be_exchanged(
    counters: SpoolCounters, orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_exchange(monkeypatch)
    assert [counters.take("global", 1) for _ in range(3)] == [1, 2, 3]
    assert orchestra.run("claim_next_id").split() == ["0004"]
    assert [path.name for path in (orchestra.comms / "counters").iterdir()] == ["global.NextId"]


def test_script_that_counts_on_between_look_and_exchange_gives_its_ids_alone(
    counters: SpoolCounters, orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counters.take("global", 1) == 1
    exchanged, late = spool_counters.exchanged, ["0002", "0003", "0004"]

    def slow(one: Path, other: Path) -> bool:
        if late:
            assert orchestra.run("claim_next_id; claim_next_id; claim_next_id").split() == late
            late.clear()
        return exchanged(one, other)

    monkeypatch.setattr(spool_counters, "exchanged", slow)
    assert counters.take("global", 1) == 5
    assert counter(orchestra).read_text() == "0006\n"


# At the same time


def test_one_script_beside_processes_of_genlock_loses_no_id(orchestra: Orchestra) -> None:
    """The counter is never missing on Genlock's account, so the script never begins again."""
    counter(orchestra).parent.mkdir()
    counter(orchestra).write_text("0001\n")
    script = theirs(orchestra, 60)
    processes = [ours(orchestra, 150) for _ in range(2)]
    given = [*ids_of(script), *(id for process in processes for id in ids_of(process))]
    assert len(given) == 360
    assert [id for id, times in Counter(given).items() if times > 1] == []
    assert counter(orchestra).read_text() == "0361\n"


def test_counter_is_never_missing_on_our_account(orchestra: Orchestra) -> None:
    """A script that looks in such an instant would begin again from the start."""
    counter(orchestra).parent.mkdir()
    counter(orchestra).write_text("0001\n")
    process, looks, missing = ours(orchestra, 400), 0, 0
    while process.poll() is None:
        missing += not os.path.exists(counter(orchestra))
        looks += 1
    assert looks > 400
    assert (len(ids_of(process)), missing) == (400, 0)


def race(orchestra: Orchestra, scripts: int, genlocks: int, count: int) -> tuple[int, int, int]:
    """How many ids the scripts have lost among themselves, Genlock among its own, and how many both
    have."""
    begun = [theirs(orchestra, count) for _ in range(scripts)]
    mine = [ours(orchestra, count) for _ in range(genlocks)]
    theirs_given = Counter(id for process in begun for id in ids_of(process))
    ours_given = Counter(id for process in mine for id in ids_of(process))
    assert ours_given.total() == genlocks * count
    return (
        theirs_given.total() - len(theirs_given),
        ours_given.total() - len(ours_given),
        len(theirs_given.keys() & ours_given.keys()),
    )


def test_processes_of_genlock_share_no_id_whatever_scripts_do(orchestra: Orchestra) -> None:
    assert race(orchestra, 2, 3, 40)[1] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_genlock_makes_the_race_of_the_scripts_no_worse(tmp_path: Path) -> None:
    """8 processes, 200 ids each: scripts alone, half and half, Genlock alone."""
    started, lost = time.monotonic(), {}
    for scripts in (8, 4, 0):
        orchestra = Orchestra(tmp_path / str(scripts))
        lost[scripts] = race(orchestra, scripts, 8 - scripts, 200)
        orchestra.close()
    alone = Orchestra(tmp_path / "alone")
    lost_by_four = race(alone, 4, 0, 200)[0]
    alone.close()
    print(lost, lost_by_four, round(time.monotonic() - started))
    assert [each[1] for each in lost.values()] == [0, 0, 0]
    assert lost[0] == (0, 0, 0)
    # Of 800 ids: scripts that race lose most of them, and lose no more beside Genlock.
    assert lost[4][0] <= max(lost_by_four * 1.25, 40)
