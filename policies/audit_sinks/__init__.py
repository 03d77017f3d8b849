"""Copies of a log's entries for places outside Sealsum: files, syslog, a SIEM. Both siblings build on it.

It knows no round, no database and no policy but what ``evidence`` asks; entries come in as records.
"""
