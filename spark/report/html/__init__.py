"""The report as one HTML file that needs nothing else: no network, and no script to show its content."""

from cdc.spark.report.html.page import as_html

__all__ = ["as_html"]
