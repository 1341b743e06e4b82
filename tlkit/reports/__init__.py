"""Table in, picture or file out."""
