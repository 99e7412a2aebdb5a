"""Plans: machines, hours and network for a load, from measured costs."""
