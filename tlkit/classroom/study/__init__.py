"""A study of the reader's own, from a text and a question to a report that can be checked."""
