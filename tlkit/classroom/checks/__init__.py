"""What is asked and how it is judged, a file for each lesson. Reading here takes the exercise out of the exercises."""
