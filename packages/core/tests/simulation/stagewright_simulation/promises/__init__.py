"""What holds of every simulation, whatever goes wrong in it: one promise a name."""
