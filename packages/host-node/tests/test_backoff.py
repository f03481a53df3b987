from stagewright_host_node.backoff import BackOff


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    backoff = BackOff(first=1, longest=8)
    pauses = [backoff.failed() for _ in range(60)]
    for number, pause in enumerate(pauses):
        whole = min(8, 2**number)
        assert 0.75 * whole <= pause <= whole
    assert backoff.failures == 60
    backoff.succeeded()
    assert backoff.failed() <= 1
