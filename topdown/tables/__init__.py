"""Reading and writing tables: Parquet, CSV and other formats, through Arrow."""
