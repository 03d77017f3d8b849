"""Attacks that Sealsum runs on itself: each must succeed with a protection off, and fail with it on."""
