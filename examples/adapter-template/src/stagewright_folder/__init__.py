"""Blobs and durable steps of Stagewright in plain files, at `folder:///path`."""
