"""The Ray that a command starts on this machine and ends. Open `start.py` first.

`head.py` knows its two leading processes, and whether one has ended. `reaper.py` removes what a killed command leaves.
`ray_init.py` also serves a Ray that alray attaches to.
"""
