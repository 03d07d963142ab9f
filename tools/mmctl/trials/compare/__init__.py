"""The variants of a model side by side: `mmctl compare`.

measure    the whole comparison                   worker     the process that runs one variant
prepare    the child that makes the variants      sessions   ONNX Runtime on a device
variants   which variants there are               turns      who runs when
data       samples to compare with                machine    where it was measured
accuracy   what variants answer, against FP32
table      measurements -> rows and ratios        stats      medians and their intervals
objective  which variant to recommend, and why    text       rows -> cells and JSON
report     cells -> one HTML file                markdown   cells -> a table for a README
"""

from enum import StrEnum


class Objective(StrEnum):
    """What a variant shall be good at."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    SIZE = "size"
