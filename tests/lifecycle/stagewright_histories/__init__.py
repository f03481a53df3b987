"""Histories of commands that are played on several stores at once."""

from stagewright_histories.actions import History
from stagewright_histories.generate import histories
from stagewright_histories.play import play
from stagewright_histories.world import World

__all__ = ["History", "World", "histories", "play"]
