"""Checks on the shape of this repository. Each takes a tree and answers what is wrong, one line each."""
