"""Histories out of Hypothesis's choices."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from stagewright.json_values import Json
from stagewright_histories.actions import (
    Action,
    Annotate,
    Beat,
    Cancel,
    ClaimRuns,
    Create,
    Deploy,
    EnqueueOwed,
    ExecuteHeld,
    ExecuteUnasked,
    FlowSpec,
    Flush,
    History,
    Hold,
    ListAll,
    Pass,
    Poll,
    Purge,
    ReapLeases,
    ReapStuck,
    Redrive,
    Replay,
    RerunFromStage,
    Signal,
    StageSpec,
    StepSpec,
    Take,
    Tick,
    Transition,
    Work,
)

__all__ = ["histories"]

_TEXTS = ("", "naïve ☃", "𝒳", "a\x00b", "\ud800", "%_\\'\"", "x" * 400)
_NUMBERS = (0, -1, 2**53 + 1, 10**30, 0.1, -0.0, 1.0, 1e300, 5e-324, True, False)
_PLAIN: SearchStrategy[Json] = st.none() | st.sampled_from(_NUMBERS) | st.sampled_from(_TEXTS)
_NAMES: SearchStrategy[str] = st.sampled_from(("b", "a", "ä"))
_VALUES: SearchStrategy[Json] = st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner),
    max_leaves=4,
)
_FEW = st.integers(0, 2)
_KEYS = st.sampled_from((None, None, None, "k0", "k1"))
_SECONDS = st.sampled_from((1, 5, 5, 10, 30, 100))

_STEPS = st.builds(
    StepSpec,
    kind=st.sampled_from(
        ("run", "run", "run", "wait", "signal", "sleep", "annotate", "log", "progress", "save")
    ),
    seconds=st.sampled_from((5, 10, 60)),
    fails=_FEW,
    retries=_FEW,
    value=_VALUES,
)
_STAGES = st.builds(
    StageSpec,
    steps=st.lists(_STEPS, max_size=3).map(tuple),
    fails=st.sampled_from((0, 0, 0, 1, 2)),
    is_fatal=st.sampled_from((False, False, False, True)),
    is_batch=st.sampled_from((False, False, False, True)),
    output=_VALUES,
    max_attempts=st.integers(1, 3),
    max_worker_losses=st.integers(1, 2),
    delay=st.sampled_from((0, 5)),
)
_GROUPS = st.lists(_STAGES, min_size=1, max_size=2).map(tuple)
_FLOWS = st.builds(FlowSpec, groups=st.lists(_GROUPS, min_size=1, max_size=3).map(tuple))

_RUNS = st.integers(0, 3)
_CREATE = st.builds(
    Create,
    flow=st.integers(0, 1),
    input=_VALUES,
    priority=st.integers(4, 6),
    key=_KEYS,
    annotations=st.none() | st.dictionaries(st.sampled_from(("x", "y")), _VALUES, max_size=2),
)
_WORK = st.builds(Work, st.sampled_from((1, 3, 8)), st.booleans())
_PASS = st.builds(Pass, _SECONDS)
_HOLD = st.builds(Hold, worker=st.sampled_from(("w1", "w2")), limit=_FEW)
_TAKE = st.builds(Take, worker=st.sampled_from(("w1", "w2")), limit=_FEW)
_EXECUTE_HELD = st.builds(ExecuteHeld, job=_FEW, keeps=st.booleans(), goes_on=st.booleans(), key=_KEYS)
_POLL = st.builds(Poll, _FEW)
_REAP_LEASES = st.builds(ReapLeases, after=_SECONDS, absolute=st.none() | _SECONDS)
_CANCEL = st.builds(Cancel, _RUNS)
_REDRIVE = st.builds(
    Redrive,
    run=_RUNS,
    origin=st.sampled_from(("failure", "start", "stage")),
    stage=_FEW,
    version=st.sampled_from(("pinned", "pinned", "latest", "unknown")),
    key=_KEYS,
)
_RERUN = st.builds(RerunFromStage, run=_RUNS, stage=_FEW, key=_KEYS)
_SIGNAL = st.builds(Signal, run=_RUNS, stage=_FEW, step=_FEW, payload=_VALUES)
_FLUSH = st.builds(
    Flush, limit=st.sampled_from((1, 3, 100)), accepts=st.integers(0, 3), refuses=st.integers(0, 3)
)
_REFUSE = st.builds(Flush, limit=st.just(100), accepts=st.integers(0, 3), refuses=st.integers(1, 3))
_PURGE = st.builds(Purge, older_than=st.sampled_from((0, 0, 5)), limit=st.integers(1, 2))
_TICK = st.just(Tick())

_SINGLE: SearchStrategy[Action] = st.one_of(
    _CREATE,
    _WORK,
    _PASS,
    _TICK,
    _HOLD,
    _TAKE,
    _EXECUTE_HELD,
    _POLL,
    _REAP_LEASES,
    _CANCEL,
    _REDRIVE,
    _RERUN,
    _SIGNAL,
    _FLUSH,
    _PURGE,
    st.builds(ClaimRuns, _FEW),
    st.builds(ExecuteUnasked, run=_RUNS, stage=_FEW),
    st.builds(Beat, _FEW),
    st.builds(Transition, _RUNS),
    st.builds(EnqueueOwed, _SECONDS),
    st.builds(ReapStuck, _SECONDS),
    st.builds(
        Annotate,
        run=_RUNS,
        name=st.sampled_from(("said", "x")),
        value=_VALUES,
        key=_KEYS,
        emits=st.booleans(),
    ),
    st.builds(Replay, st.integers(1, 2)),
    st.just(Deploy()),
    st.builds(ListAll, st.integers(1, 2)),
)
# What seldom comes about by single actions, since one has to follow the other.
_PHRASES: SearchStrategy[tuple[Action, ...]] = st.one_of(
    st.tuples(_SINGLE),
    st.tuples(_SINGLE, _SINGLE),
    st.tuples(_SINGLE, _SINGLE, _SINGLE),
    st.tuples(_CREATE, _WORK),
    st.tuples(_WORK, _PASS, _POLL, _WORK),
    st.tuples(_SIGNAL, _WORK, _PASS, _TICK),
    st.tuples(
        _CREATE,
        st.just(ClaimRuns(3)),
        _HOLD,
        _PASS,
        st.builds(Beat, _FEW),
        _PASS,
        _REAP_LEASES,
        _EXECUTE_HELD,
    ),
    st.tuples(_CREATE, _TAKE, _EXECUTE_HELD, _PASS, _REAP_LEASES, _EXECUTE_HELD, _WORK),
    st.tuples(_TICK, _HOLD, st.just(Pass(100)), _TICK, _EXECUTE_HELD, _WORK),
    st.tuples(_CREATE, st.just(ClaimRuns(3)), _HOLD, _CANCEL, _EXECUTE_HELD),
    st.tuples(_WORK, _CANCEL, _REDRIVE, _WORK),
    st.tuples(_WORK, _PASS, _WORK, _REDRIVE | _RERUN, _WORK),
    st.tuples(_CANCEL, st.just(Flush()), _PURGE),
    st.tuples(_REFUSE, st.just(Pass(100)), _REFUSE, st.builds(Replay, st.integers(1, 2)), _FLUSH),
    st.tuples(st.just(Deploy()), _REDRIVE, _WORK),
)


def histories(*, least: int, most: int) -> SearchStrategy[History]:
    """Two workflows, and so many phrases of a few actions each, after a run was created."""
    return st.builds(
        lambda flows, phrases: History(
            flows=flows, actions=(Create(), Work(1), *(action for phrase in phrases for action in phrase))
        ),
        st.tuples(_FLOWS, _FLOWS),
        st.lists(_PHRASES, min_size=least, max_size=most),
    )
