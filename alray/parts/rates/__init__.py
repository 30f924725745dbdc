"""How the learning rate can change.

A rate is a file: its section of a spec, and `rate(section, at)`, the rate at a `Moment`.
"""
