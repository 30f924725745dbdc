"""Drive a plan through failures to its end. Open `driver.py` first.

`engines.py` says what the stages run on, and `recorder.py` writes what they report.
`resume.py` opens a run that continues, `provenance.py` describes one.
"""
