"""The pictures of one lesson or a few, each file those of one subject."""
