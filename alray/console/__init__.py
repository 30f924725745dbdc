"""How a run is shown to a person while it goes on, and how that person interrupts it."""
