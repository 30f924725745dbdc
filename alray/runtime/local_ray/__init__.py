"""The Ray that a command starts on this machine and ends. Open `start.py` first.

`watch.py` ends it where it is silent (by `head.py`, which knows its two leading processes), and `reaper.py` removes
what a killed command leaves. `ray_init.py` also serves a Ray that alray attaches to.
"""
