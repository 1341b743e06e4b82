"""The commands of `python -m tlkit`: each a function, named as it is typed, of the settings that it takes."""
