"""What the matrix runs on every set-up."""
