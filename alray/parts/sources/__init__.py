"""Where samples can come from. `keys.py` of a source is its section of a spec; `opened` in its `source.py` makes the
source."""
