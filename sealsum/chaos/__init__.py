"""A federation of real processes under kills and stalls, judged afterwards by the auditor's verifier."""
