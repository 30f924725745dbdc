"""What everything else rests on: errors, files, the run folder, seeds. It knows neither specs nor torch's networks."""
