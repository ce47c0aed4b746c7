"""What is made on first use."""

import threading

from capri._lazy import once


class Thing:
    def __init__(self):
        self.asked, self.waits = 0, threading.Event()

    @once
    def value(self):
        "It takes a while."
        self.asked += 1
        return self.waits.wait(30)


def test_a_value_is_computed_once_for_each_object():
    thing, other = Thing(), Thing()
    thing.waits.set()
    other.waits.set()
    assert (thing.value, thing.value, thing.asked) == (True, True, 1)
    assert other.asked == 0
    assert Thing.value.__doc__ == "It takes a while."


def test_objects_do_not_wait_for_each_other():
    slow, quick = Thing(), Thing()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    quick.waits.set()
    second = threading.Thread(target=lambda: quick.value, daemon=True)
    second.start()
    second.join(10)
    assert not second.is_alive()
    assert thread.is_alive()
    slow.waits.set()
    thread.join(30)
