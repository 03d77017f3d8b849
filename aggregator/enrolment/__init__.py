"""Enrolment: the federation's authority, its one-time invitations, the charter that closes it."""
