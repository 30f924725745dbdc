"""How a run is shown to a person while it is running, and how that person interrupts it."""
