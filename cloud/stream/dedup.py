"""The dedup by Spark's state: of the duplicates within the window, one survives."""

from pyspark.sql import DataFrame


def drop_duplicates(records: DataFrame, window_seconds: int) -> DataFrame:
    """Return the first record of each key within the window.

    The watermark runs on processing time, one value per batch (`seen`); on any other time it would drop originals.
    """
    return records.withWatermark("seen", f"{window_seconds} seconds").dropDuplicatesWithinWatermark(["key"])
