"""Many processes over shared stores on one deterministic event loop, with faults at every call, out of one number."""
