"""Replay: a fixed list of inputs through two commits, and what differs between their answers.

    python -m tests.replay BASE         all of it: `make replay BASE=COMMIT`
    python -m tests.replay.play FILE    the answers of this tree alone
    python -m tests.replay.recorded     record the answers that `make test` compares

`inputs.yaml` says what is played and how it is made small, `meant.yaml` which differences are meant.
"""
