"""What may be said about a training run, and how surely."""
