"""The commands, one file each; the file is named after the command's type."""

__all__: list[str] = []
