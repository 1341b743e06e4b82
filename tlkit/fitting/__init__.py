"""What a training step will need, and what to do when it does not fit."""
