"""The report of an evidence pack for people: one document, written as HTML and as PDF."""
