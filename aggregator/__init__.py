"""The servers: an aggregator that plans and opens sums, and share servers that each hold one share."""
