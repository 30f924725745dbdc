"""The parts that a spec chooses by name: one folder for each kind, one folder or file in it for each part.

No other layer imports a part: each is found by its name (`alray.core.parts`, `alray.config.sections.kind`).
"""
