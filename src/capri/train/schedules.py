"""Learning rates over time, as pure functions of the step: the share of the highest rate."""

from __future__ import annotations

import math

from capri.train.config import ScheduleConfig

START, END = 1 / 25, 1 / 25 / 1e4  # of one-cycle, as in torch's OneCycleLR


def learning_rate_factor(schedule: ScheduleConfig, step: int, total_steps: int, steps_per_epoch: int) -> float:
    """The factor at `step` = 0 … total_steps − 1."""
    if schedule.name == "onecycle":
        return _one_cycle(step, total_steps, schedule.warmup)
    rising = schedule.warmup * total_steps
    if step < rising:
        return (step + 1) / (rising + 1)
    if schedule.name == "cosine":
        return _cosine(1.0, 0.0, (step - rising) / max(total_steps - rising, 1))
    if schedule.name == "step":
        epoch = step // max(steps_per_epoch, 1)
        return schedule.factor ** sum(epoch >= m for m in schedule.milestones)
    return 1.0


def _one_cycle(step: int, total_steps: int, warmup: float) -> float:
    top = warmup * total_steps - 1
    last = total_steps - 1
    if top > 0 and step <= top:  # a run of a few steps has no warm-up
        return _cosine(START, 1.0, step / top)
    return _cosine(1.0, END, (step - top) / max(last - top, 1))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
