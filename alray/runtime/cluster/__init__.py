"""The cluster that a run uses, and where its stages go on it. Open `connect.py` first, then `placement.py`.

`nodes.py` lists the nodes, `room.py` says whether stages have room there, `links.py` measures the
links between them.
"""
