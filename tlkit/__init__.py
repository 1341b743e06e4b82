"""tlkit: the small package that every lesson of the workbook imports."""
