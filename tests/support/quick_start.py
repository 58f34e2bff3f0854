"""What programs in Java are given that live for seconds."""

from typing import Final

QUICK_START: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""The first compiler alone, so that a start takes two thirds of the CPU time.

Java then takes a fifth of the usual memory for code, unless told otherwise; an audit fills that, and Java ends.
"""
