"""The actions of schedules, what schedules share, and the table that finds each one in `alray/parts/schedules`."""
